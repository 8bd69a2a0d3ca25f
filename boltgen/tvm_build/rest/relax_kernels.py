"""TVM's own kernels in a lowered Relax module, with their bytes and operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax, tirx
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.sym import Analyzer

from boltgen.artifact.coverage import RestKernel
from boltgen.frontend.relax.region_calls import SCHEDULED, SYMBOL
from boltgen.frontend.relax.symbols import Ends, ranges_in
from boltgen.ir.extent import MOST_UNKNOWN, Symbol, symbolic, typical

_CALLS = ("relax.call_tir", "relax.call_tir_inplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestFunction:
    """A TVM kernel with its function, which is not scheduled yet."""

    kernel: RestKernel
    function: tirx.PrimFunc


def rest_functions(module: tvm.IRModule) -> tuple[RestFunction, ...]:
    """Return the kernels of a legalised and fused module that TVM's tuner supports.

    Their sizes are known, and they are not scheduled yet.
    """
    return tuple(
        RestFunction(kernel=each, function=module[each.name])
        for each in rest_kernels(module) or ()
        if not each.is_open
        and SCHEDULED not in (module[each.name].attrs or {})
        and all(isinstance(param, tirx.Buffer) for param in module[each.name].params)
    )


def rest_kernels(module: tvm.IRModule) -> tuple[RestKernel, ...] | None:
    """Return the kernels of a legalised and fused module that are not boltgen's.

    Reshapes launch no kernel. A dynamic size counts as the middle of its range, and its operations
    are not counted. Return None if a tensor has no shape.
    """
    lowered = relax.transform.RewriteDataflowReshape()(module)
    middle = _middle(lowered)
    counts: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for name, call in _kernel_calls(lowered):
        size = _bytes_moved(call, middle)
        if size is None:
            return None
        counts[name] += 1
        moved[name] += size
    is_open = {name for name, call in _kernel_calls(lowered) if _is_open(call)}
    return tuple(
        RestKernel(
            name=name,
            count=count,
            # A kernel with dynamic sizes may be launched for several sizes.
            bytes_moved=moved[name] // count,
            flops=0 if name in is_open else _flops(lowered, name),
            is_open=name in is_open,
        )
        for name, count in counts.items()
    )


def _middle(module: tvm.IRModule) -> Callable[[str], int]:
    """Return a function from a variable's name to the middle of its range, as regions show it."""
    ranges: dict[str, Ends] = {}
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            ranges |= ranges_in(function)

    def middle(name: str) -> int:
        low, high = ranges.get(name, (1, None))
        return typical(
            symbolic(Symbol(name, low, max(low, MOST_UNKNOWN) if high is None else high))
        )

    return middle


def _kernel_calls(module: tvm.IRModule) -> Iterator[tuple[str, tvm.ir.Call]]:
    """Yield every call of a TVM kernel, with the kernel's name."""
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


def _tensors(call: tvm.ir.Call) -> Iterator[relax.TensorType]:
    """Yield the types of the tensors that a kernel reads and writes."""
    results = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
    for tensor in (*(each.ty for each in call.args[1]), *results):
        if isinstance(tensor, relax.TensorType):
            yield tensor


def _is_open(call: tvm.ir.Call) -> bool:
    """Return whether a kernel has a size that is unknown before the model runs."""
    shapes = (tensor.shape for tensor in _tensors(call) if tensor.shape is not None)
    return any(not isinstance(extent, tirx.IntImm) for shape in shapes for extent in shape.values)


def _bytes_moved(call: tvm.ir.Call, middle: Callable[[str], int]) -> int | None:
    """Return the bytes that a kernel reads and writes, or None if a tensor has no shape."""
    moved = 0
    for tensor in _tensors(call):
        extents = tensor.shape.values if tensor.shape is not None else ()
        if len(extents) != tensor.ndim:
            return None
        known = [_known(extent, middle) for extent in extents]
        moved += prod(known) * int(tvm.DataType(tensor.dtype).itemsize)
    return moved


def _known(extent: tirx.PrimExpr, middle: Callable[[str], int]) -> int:
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    analyzer = Analyzer()
    for var in tirx.analysis.undefined_vars(extent):
        analyzer.bind(var, tirx.IntImm("int64", middle(str(var.name))))
    return int(analyzer.simplify(extent))


def _flops(module: tvm.IRModule, name: str) -> int:
    return int(estimate_tir_flops(tvm.IRModule({name: module[name]})))
