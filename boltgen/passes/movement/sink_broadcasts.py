"""Sink `broadcast_to` below elementwise operators, so that masks stay small. For both IRs.

    where(broadcast_to(seen (B, 1, 1, K), (B, 1, M, K)), 0, lowest)
    ->  broadcast_to(where(seen, 0, lowest), (B, 1, M, K))

PyTorch broadcasts a mask of keys to rows and keys. If the scores have that shape anyway, no
broadcast is left, and attention's kernel reads the mask of keys itself.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import AND, POINTWISE, behind
from boltgen.graph.graph import CONSTANT, Array, Expr, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.patterns import Match, Number, Reader, Through, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.extent import broadcast
from boltgen.passes.arithmetic.cse import joined
from boltgen.passes.precision.fold import applied

_BROADCAST = "broadcast_to"
_BROADCASTS = frozenset({_BROADCAST})
# Constants of masks have at least these dimensions: sequences, rows and keys.
_MASK_RANK = 3


def with_late_broadcasts(graph: Graph) -> Graph:
    """Return `graph` with broadcasts as late as possible, and without broadcasts to scores."""
    return rewrite(graph, _RULES)


def _narrow(array: Array | None) -> Array:
    """Return a mask without dimensions of equal elements."""
    assert array is not None  # or it is no mask
    for axis, extent in enumerate(array.shape):
        first = array.take([0], axis) if extent > 1 else array
        if extent > 1 and (array == first).all():
            array = first
    return array


def _narrowed(found: Match, builder: GraphBuilder) -> int:
    number = builder.constant(_narrow(found.expr().array))
    return builder.broadcast_to(number, found.expr().static_shape)


def _is_no_mask(found: Match) -> str | None:
    array, graph = found.expr().array, found.source
    if array is None or array.ndim < _MASK_RANK or found.origin in graph.escaping:
        return ""
    readers = (graph[reader].op for reader in graph.consumers[found.origin])
    return None if POINTWISE.issuperset(readers) and _narrow(array).size < array.size else ""


def _folded(found: Match) -> Array | None:
    """Return the number that an operator computes from numbers."""
    expr, arrays = found.expr(), (found.values[arg].array for arg in found.expr().args)
    return applied(Operation.of(expr), [each for each in arrays if each is not None])


def _number(found: Match, builder: GraphBuilder) -> int:
    number = _folded(found)
    assert number is not None  # or the rule would not have fired
    return builder.constant(number)


def _changes(found: Match) -> str | None:
    is_of_bits = found.expr().op in AND and found.expr().dtype != "bool"
    return "it computes with bits" if is_of_bits else None


def _sunk(found: Match) -> Expr:
    """Return the operator on the sources of broadcast operands."""
    expr, values = found.expr(), found.values
    sources = (behind(values, arg, _BROADCASTS) for arg in expr.args)
    both = zip(expr.args, sources, strict=True)
    args = tuple(source if values[source].is_static else arg for arg, source in both)
    shape = broadcast(*(values[arg].static_shape for arg in args))
    if shape == expr.static_shape:
        # Kernels load a number of each row, and none of all rows of a matrix.
        pairs = zip(expr.args, args, strict=True)
        args = tuple(arg if _is_column(values[arg]) else source for arg, source in pairs)
    return replace(expr, args=args, shape=shape)


def _is_column(expr: Expr) -> bool:
    return len(expr.static_shape) > 1 and expr.static_shape[-1] == 1 != expr.static_shape[-2]


def _reduced(found: Match) -> tuple[int, ...]:
    """Return the shape of the maximum or minimum of the source of a broadcast."""
    shape, rank = found.expr("x").static_shape, len(found.shape())
    reduced = {axis - rank + len(shape) for axis in found.expr().attrs.of(Reduce).axes(rank)}
    return tuple(1 if place in reduced else extent for place, extent in enumerate(shape))


def _is_of_other_axes(found: Match) -> str | None:
    attrs, shape = found.expr().attrs.of(Reduce), found.shape("x")
    if attrs.axis is None or not attrs.keepdims:
        return "it drops dimensions"
    is_of_axes = len(shape) == len(found.shape()) or _reduced(found) == shape
    return None if is_of_axes else "the broadcast adds dimensions"


def _chosen(found: Match, builder: GraphBuilder) -> int:
    expr, x, shape = found.expr(), found["x"], _reduced(found)
    if shape != builder.shape(x):  # or all elements along the axes are equal
        x = builder.add(replace(expr, args=(x,), shape=shape))
    return builder.broadcast_to(x, expr.static_shape)


_RULES = (
    Rule(name="narrow a mask", pattern=op(CONSTANT), write=_narrowed, unless=_is_no_mask),
    *(
        Rule(
            name="compute a number",
            pattern=op(POINTWISE, *(Number(f"number {place}") for place in range(count))),
            write=_number,
            unless=lambda found: "NumPy does not compute it" if _folded(found) is None else None,
        )
        for count in (1, 2, 3)
    ),
    *(
        Rule(
            name=f"drop `{name} {number:g}`",
            pattern=op(name, Var("x"), Through(_BROADCASTS, Number("neutral", number))),
            write=lambda found, b: b.broadcast_to(found["x"], found.expr().static_shape),
            unless=_changes,
        )
        for name, number in (("add", 0.0), ("multiply", 1.0), *((each, 1.0) for each in AND))
    ),
    joined(_BROADCAST),
    Rule(
        name="sink a broadcast",
        pattern=Reader(POINTWISE, op(_BROADCAST, Var("x"))),
        write=lambda found, b: b.broadcast_to(b.add(_sunk(found)), found.expr().static_shape),
        unless=lambda found: (
            "kernels load a number of each row" if _sunk(found).args == found.expr().args else None
        ),
    ),
    Rule(
        name="broadcast after the maximum",
        pattern=op(frozenset({"max", "min"}), op(_BROADCAST, Var("x"))),
        write=_chosen,
        unless=_is_of_other_axes,
    ),
)
