"""Undo an exporter's flattening of two row dimensions before a matmul. For both IRs.

    (B, S, K) -> reshape (B S, K) -> matmul -> add -> reshape (B, S, N)
    (B, S, K) -> matmul -> add

It applies only to a dynamic B or S: a region's call reads extents from its tensors, and from B S
alone it knows neither. So heads of attention can be sliced from the matmul's columns in place. A
kernel has as many rows either way.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Axis, Slice
from boltgen.graph.facts import Values, is_static_call
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Match, Reader, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.extent import Dim
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE, VIEW

_SLICE = "strided_slice"


def products_of_open_rows(graph: Graph) -> Graph:
    """Return `graph` without matmuls whose dynamic number of rows has two dimensions."""
    is_flat = any(_is_flat(graph, index) for index in graph.operators.get(VIEW, ()))
    return rewrite(graph, _RULES) if is_flat else graph


def _is_flat(values: Values, index: int) -> bool:
    """Return whether a value is another one with its rows as one dynamic dimension."""
    expr = values[index]
    if expr.op != VIEW or not is_static_call(values, index):
        return False
    before, after = values[expr.args[0]].static_shape, expr.static_shape
    is_matrix = len(before) > 2 == len(after) and isinstance(after[0], Dim)
    several = sum(extent != 1 for extent in before[:-1]) > 1
    return is_matrix and several and before[-1] == after[-1]


def _rows(found: Match) -> set[tuple[int, ...]]:
    """Return the dimensions of the rows of all flattened operands."""
    sources = (_source(found, arg) for arg in found.expr().args)
    return {found.values[each].static_shape[:-1] for each in sources if each is not None}


def _source(found: Match, arg: int) -> int | None:
    return found.values[arg].args[0] if _is_flat(found.values, arg) else None


def _obstacle(found: Match) -> str | None:
    expr, values = found.expr(), found.values
    if len(_rows(found)) > 1:
        return "the rows of the operands have different dimensions"
    ranks = [len(values[arg].static_shape) for arg in expr.args if not _is_flat(values, arg)]
    if expr.op == MATMUL:
        is_of_rows = ranks == [2] and _is_flat(values, expr.args[0])
        return None if is_of_rows else "it is no matmul of the rows and one matrix"
    if expr.op == _SLICE:
        is_of_columns = isinstance(expr.attrs, Slice) and expr.attrs.axis == 1
        return None if is_of_columns else "it slices rows"
    if isinstance(expr.attrs, Axis) or max(ranks, default=0) > 1:
        return "an operand has numbers for each row"
    return None


def _unflattened(found: Match, builder: GraphBuilder) -> int:
    expr, (rows,) = found.expr(), _rows(found)
    sources = ((_source(found, arg), arg) for arg in expr.args)
    args = tuple(arg if source is None else source for source, arg in sources)
    made = replace(expr, args=args, shape=(*rows, expr.static_shape[-1]))
    if isinstance(expr.attrs, Slice):  # the author's call has the axes as numbers
        made = replace(made, attrs=replace(expr.attrs, axis=len(rows)), origin=None)
    return builder.reshape(builder.add(made), expr.static_shape)


_RULES = (
    Rule(
        name="reshape rows that are apart",
        pattern=op(VIEW, op(VIEW, Var("x"), name="flat")),
        write=lambda found, builder: builder.in_shape(found["x"], found.expr().static_shape),
        unless=lambda found: None if _is_flat(found.values, found["flat"]) else "",
    ),
    Rule(
        name="keep rows apart",
        pattern=Reader((ELEMENTWISE - {VIEW}) | {MATMUL, _SLICE}, Var("flat", _is_flat)),
        write=_unflattened,
        unless=_obstacle,
    ),
)
