"""The predicted time of a partitioned Relax model, its launches and its bytes, beside TVM alone.

Nothing is compiled or executed. Launches are counted in the module that TVM would build. A
launch moves each of its tensors once; workspaces and caches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax as ir

from benchmarks.trials.process import Row
from boltgen.arch import Arch
from boltgen.artifact.coverage import RestKernel, coverage
from boltgen.frontend import relax
from boltgen.frontend.relax.region_calls import SYMBOL
from boltgen.tvm_build.lowering.schedules import unscheduled
from boltgen.tvm_build.model import Model
from boltgen.tvm_build.predicted import model_times
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.tvm_build.rest.relax_kernels import rest_kernels

_SLOWEST = 6


def predicted(model: Model, arch: Arch) -> Row:
    """Return the share of FLOPs and of predicted time in kernels, launches, bytes and the time.

    "slowest_of_tvm" has the kernels that TVM keeps with the longest times, in microseconds.
    """
    found = model_times(model, arch)
    # A kernel reads, or writes, what a layout transform has written, or reads.
    between = sum(
        _between(each.memory.before, is_after=False) + _between(each.memory.after, is_after=True)
        for each in found.plan.launches
    )
    of_tvm, total_us = found.rest_us, found.total_us
    launches_of_tvm = sum(each.count for each in found.rest)
    slowest = sorted(of_tvm, key=lambda name: -of_tvm[name])[:_SLOWEST]
    return {
        "share_of_flops": coverage(model.partitioned.placements).share,
        "share_of_time": found.regions_us / total_us if total_us else 1.0,
        "launches": len(found.plan.launches) + len(found.moves) + launches_of_tvm,
        "launches_of_tvm": launches_of_tvm,
        "bytes": _bytes_of_regions(found.module) + _bytes_of(found.rest) + between,
        "predicted_us": total_us,
        "slowest_of_tvm": {name: round(of_tvm[name], 2) for name in slowest},
    }


def alone(module: tvm.IRModule, arch: Arch) -> Row:
    """Return the launches and the bytes of an imported module as TVM alone runs it."""
    rest = rest_kernels(unscheduled(relax.of_tvm_alone(module), cuda_target(arch))) or ()
    return {
        "launches_of_tvm_alone": sum(each.count for each in rest),
        "bytes_of_tvm_alone": _bytes_of(rest),
    }


def _between(planned: Any, *, is_after: bool) -> int:
    """Return the bytes that a kernel and its layout transform pass on, written and read."""
    if planned is None:
        return 0
    move = planned.transform
    passed: int = move.a_bytes if is_after else move.bytes_moved - move.a_bytes
    return 2 * passed


def _bytes_of(kernels: Sequence[RestKernel]) -> int:
    return sum(each.count * each.bytes_moved for each in kernels)


def _bytes_of_regions(module: tvm.IRModule) -> int:
    """Return the bytes of the tensors that calls of regions read and write."""
    found: list[int] = []

    def visit(node: Any) -> None:
        if not isinstance(node, tvm.ir.Call) or not isinstance(node.op, tvm.ir.Op):
            return
        if node.op.name != "relax.call_tir":
            return
        if SYMBOL not in (module[node.args[0].name_hint].attrs or {}):
            return
        results = node.ty.fields if isinstance(node.ty, ir.TupleType) else [node.ty]
        tensors = [*(each.ty for each in node.args[1].fields), *results]
        found.extend(_size(each) for each in tensors if isinstance(each, ir.TensorType))

    for function in module.functions.values():
        if isinstance(function, ir.Function):
            ir.analysis.post_order_visit(function, visit)
    return sum(found)


def _size(tensor: Any) -> int:
    elements = prod(int(extent) for extent in tensor.shape.values)
    return elements * int(tvm.DataType(tensor.dtype).bits) // 8
