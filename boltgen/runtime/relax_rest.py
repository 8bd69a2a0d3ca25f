"""The kernels of a lowered Relax module that are TVM's own: their bytes and operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax, tirx
from tvm.s_tir.analysis import estimate_tir_flops

from boltgen.frontend.relax.region_calls import SCHEDULED, SYMBOL
from boltgen.runtime.coverage import RestKernel

_CALLS = ("relax.call_tir", "relax.call_tir_inplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestFunction:
    """A kernel of TVM's with its function, which has no schedule yet."""

    kernel: RestKernel
    function: tirx.PrimFunc


def rest_functions(module: tvm.IRModule) -> tuple[RestFunction, ...]:
    """The kernels of a legalised and fused module that TVM's tuner can take.

    Their sizes are known, and nothing has scheduled them yet.
    """
    return tuple(
        RestFunction(kernel=each, function=module[each.name])
        for each in rest_kernels(module) or ()
        if SCHEDULED not in (module[each.name].attrs or {})
        and all(isinstance(param, tirx.Buffer) for param in module[each.name].params)
    )


def rest_kernels(module: tvm.IRModule) -> tuple[RestKernel, ...] | None:
    """The kernels of a legalised and fused module that are not boltgen's.

    Reshapes launch nothing. None where a size is open: nothing is known then.
    """
    lowered = relax.transform.RewriteDataflowReshape()(module)
    counts: Counter[str] = Counter()
    moved: dict[str, int] = {}
    for name, call in _kernel_calls(lowered):
        size = _bytes_moved(call)
        if size is None:
            return None
        counts[name] += 1
        moved[name] = size
    return tuple(
        RestKernel(name=name, count=count, bytes_moved=moved[name], flops=_flops(lowered, name))
        for name, count in counts.items()
    )


def _kernel_calls(module: tvm.IRModule) -> Iterator[tuple[str, tvm.ir.Call]]:
    """Every call of a kernel that TVM makes, with its name."""
    found: list[tvm.ir.Call] = []

    def visit(node: object) -> None:
        callee = node.op if isinstance(node, tvm.ir.Call) else None
        if isinstance(callee, tvm.ir.Op) and callee.name in _CALLS:
            found.append(node)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    for call in found:
        name = call.args[0].name_hint
        if SYMBOL not in (module[name].attrs or {}):
            yield name, call


def _bytes_moved(call: tvm.ir.Call) -> int | None:
    """Bytes of what a kernel reads and writes; None where a size is open."""
    results = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
    moved = 0
    for tensor in (*(each.ty for each in call.args[1]), *results):
        if not isinstance(tensor, relax.TensorType):
            continue
        extents = tensor.shape.values if tensor.shape is not None else ()
        known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
        if len(known) != tensor.ndim:
            return None
        moved += prod(known) * int(tvm.DataType(tensor.dtype).itemsize)
    return moved


def _flops(module: tvm.IRModule, name: str) -> int:
    return int(estimate_tir_flops(tvm.IRModule({name: module[name]})))
