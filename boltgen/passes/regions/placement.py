"""Say where each operator of a partitioned graph runs, why, and its share of the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from boltgen.graph.attributes import Axis, Convolution, Einsum, Opaque, Reduce, RegionCall
from boltgen.graph.facts import MOVES
from boltgen.graph.graph import (
    CONSTANT,
    GROUPED,
    INPUT,
    PART,
    RECURRENT,
    REGION,
    Expr,
    Extents,
    Graph,
)
from boltgen.ir.extent import Dim, typical
from boltgen.passes.regions.anchor import ANCHORS, CONV2D, CONV3D, MATMUL, match_anchor
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE
from boltgen.problems.region import Placement, Region, Rejected

_NO_GRAPH = "boltgen does not look into branches and calls"
EINSUM = "einsum"
# Convolutions that no kernel computes; the first extent of their weights are channels.
_TRANSPOSED = "only normalisation writes it as a convolution, which kernels compute"
_OTHER_PRODUCTS = {
    "nn.conv1d": "kernels exist for images and volumes only: give it a height of one",
    "nn.conv1d_transpose": _TRANSPOSED,
    "nn.conv2d_transpose": _TRANSPOSED,
    "nn.conv3d_transpose": _TRANSPOSED,
    EINSUM: "no kernel computes a diagonal or a sum along one operand's axis beside a product: "
    "write it as an operator of its own",
}


def placements(graph: Graph, regions: Mapping[str, Region]) -> Iterator[Placement]:
    """Yield the place of each operator, in the graph's order."""
    for index, expr in enumerate(graph.exprs):
        if expr.op in {INPUT, CONSTANT, PART}:
            continue
        shape = tuple(str(each) if isinstance(each, Dim) else each for each in expr.shape or ())
        if expr.op == REGION:
            region = regions[expr.attrs.of(RegionCall).symbol]
            yield Placement(
                operator=region.label,
                shape=shape,
                region=region.symbol,
                reason=region.note,
                flops=region.workload.typical.flops,
            )
        else:
            yield _stays(graph, index, shape)
            yield from _inside(expr)


def _inside(expr: Expr) -> Iterator[Placement]:
    """The products in functions and arms that an opaque expression has."""
    attrs = expr.attrs
    if isinstance(attrs, Opaque) and isinstance(attrs.inside, Graph):
        for placed in placements(attrs.inside, {}):
            if placed.flops:
                reason = f"it is inside of {attrs.callee}: give it a function of its own"
                yield replace(placed, reason=reason)


def _stays(graph: Graph, index: int, shape: tuple[int | str, ...]) -> Placement:
    expr = graph[index]
    name = {"image_mean": "mean"}.get(expr.op, expr.op.removeprefix("nn."))
    rejected = match_anchor(graph, index) if expr.op in ANCHORS else None
    if isinstance(expr.attrs, Opaque):
        name, reason = expr.attrs.callee, _NO_GRAPH
    elif isinstance(rejected, Rejected):
        reason = expr.reason or rejected.reason
    else:
        reason = expr.reason or _OTHER_PRODUCTS.get(expr.op) or _without_kernel(expr, name)
    return Placement(
        operator=name, shape=shape, region=None, reason=reason, flops=_flops(graph, expr)
    )


def _without_kernel(expr: Expr, name: str) -> str:
    """Return why TVM computes an operator that no pass has a reason for."""
    if expr.op in MOVES:
        return f"a {name} computes nothing: no kernel begins with it"
    if expr.op in ELEMENTWISE:
        return f"no kernel begins with {name}, and none before it reaches it"
    match expr.attrs:
        case Reduce(axis=axes) if axes is not None:
            return f"no kernel begins with {name} along the axes {', '.join(map(str, axes))}"
        case Axis(axis=axis) if axis is not None:
            return f"no kernel computes {name} along axis {axis}"
    return f"no kernel computes {name}"


def _flops(graph: Graph, expr: Expr) -> int:
    """Floating-point operations of a product, in the middle of the ranges of symbolic extents."""
    if expr.op not in ANCHORS and expr.op not in _OTHER_PRODUCTS:
        return 0
    if len(expr.args) < 2 or expr.shape is None:
        return 0
    if expr.op == EINSUM:
        return _einsum_flops(graph, expr)
    a, b = graph[expr.args[0]].shape, graph[expr.args[1]].shape
    if a is None or b is None or not a or not b:
        return 0
    if expr.op in {MATMUL, GROUPED}:
        return 2 * _elements(expr.shape) * _extent(a[-1])
    if expr.op == RECURRENT:
        return 2 * _elements(a[:2]) * _elements(b)
    layout = expr.attrs.kernel_layout if isinstance(expr.attrs, Convolution) else ""
    if expr.op in {CONV2D, CONV3D} and layout.count("O") == 1:
        filters = _extent(b[layout.index("O")])
        return 2 * _elements(expr.shape) * _elements(b) // max(filters, 1)
    # In a transposed convolution each element of the input meets a filter, in others each element
    # of the result.
    if expr.op.endswith("_transpose"):
        return 2 * _elements(a) * _elements(b) // max(_extent(b[0]), 1)
    return 2 * _elements(expr.shape) * _elements(b) // max(_extent(b[0]), 1)


def _einsum_flops(graph: Graph, expr: Expr) -> int:
    """Return the operations of an einsum: a product for each element of the result and of the
    summed axes.
    """
    inputs, arrow, output = expr.attrs.of(Einsum).subscripts.replace(" ", "").partition("->")
    extents: dict[str, int] = {}
    for arg, term in zip(expr.args, inputs.split(","), strict=True):
        before, _, after = term.partition("...")
        shape = graph[arg].shape or ()
        pairs = [*zip(before, shape, strict=False), *zip(after[::-1], shape[::-1], strict=False)]
        extents |= {letter: _extent(extent) for letter, extent in pairs}
    kept = output if arrow else [each for each in extents if inputs.count(each) == 1]
    summed = [extent for letter, extent in extents.items() if letter not in kept]
    return 2 * _elements(expr.shape or ()) * prod(summed) if summed else 0


def _extent(extent: int | str) -> int:
    return typical(extent) if isinstance(extent, int) else 1


def _elements(shape: Extents) -> int:
    return prod(map(_extent, shape))
