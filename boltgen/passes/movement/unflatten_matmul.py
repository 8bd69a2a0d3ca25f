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
from boltgen.graph.graph import Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.ir.extent import Dim
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE, VIEW

_SLICE = "strided_slice"


def products_of_open_rows(graph: Graph) -> Graph:
    """Return `graph` without matmuls whose dynamic number of rows has two dimensions."""
    if not any(_is_joined(graph, index) for index in range(len(graph))):
        return graph
    return _Walk(graph).run()


def _is_joined(graph: Graph, index: int) -> bool:
    """Return whether a value is another one with its rows as one dynamic dimension."""
    expr = graph[index]
    if expr.op != VIEW or not expr.is_static or not graph[expr.args[0]].is_static:
        return False
    before, after = graph[expr.args[0]].static_shape, expr.static_shape
    is_matrix = len(before) > 2 == len(after) and isinstance(after[0], Dim)
    several = sum(extent != 1 for extent in before[:-1]) > 1
    return is_matrix and several and before[-1] == after[-1]


class _Walk:
    """One graph under way. `_apart` maps matrices of `graph` to the same values with two row
    dimensions.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder()
        self._names: dict[int, int] = {}
        self._apart: dict[int, int] = {}

    def run(self) -> Graph:
        """Rewrite the whole graph."""
        for index, expr in enumerate(self._graph.exprs):
            if _is_joined(self._graph, index):
                source = expr.args[0]
                self._apart[index] = self._apart.get(source, self._names[source])
            elif (made := self._with_rows(expr)) is not None:
                self._apart[index] = made
            # If nothing reads the flattened matrix, it is dropped with all dead values.
            self._names[index] = self._named(index, expr)
        return self._builder.graph(mapped(self._graph.results, self._names))

    def _named(self, index: int, expr: Expr) -> int:
        if index in self._apart:
            return self._builder.reshape(self._apart[index], expr.static_shape)
        source = self._apart.get(expr.args[0]) if expr.op == VIEW and expr.is_static else None
        if source is None:
            return self._builder.add(renamed(expr, self._names))
        shape = expr.static_shape
        is_same = self._builder.shape(source) == shape
        return source if is_same else self._builder.reshape(source, shape)

    def _with_rows(self, expr: Expr) -> int | None:
        """Apply the operator to operands with row dimensions; None if it is impossible."""
        places = [place for place, arg in enumerate(expr.args) if arg in self._apart]
        if not places or not expr.is_static or expr.pinned:
            return None
        args, attrs = list(expr.args), expr.attrs
        rows = {self._rows(args[place]) for place in places}
        if len(rows) > 1:
            return None
        if expr.op == MATMUL:
            is_of_rows = places == [0] and len(self._graph[args[1]].shape or ()) == 2
        elif expr.op == _SLICE:
            is_of_rows = isinstance(attrs, Slice) and attrs.axis == 1
        else:
            others = [arg for arg in args if arg not in self._apart]
            is_plain = expr.op in ELEMENTWISE - {VIEW} and not isinstance(attrs, Axis)
            is_of_rows = is_plain and all(self._is_row(arg) for arg in others)
        if not is_of_rows:
            return None
        (outer,) = rows
        shape = (*outer, expr.static_shape[-1])
        names = [self._apart.get(arg, self._names[arg]) for arg in args]
        expr = replace(expr, args=tuple(names), shape=shape)
        if isinstance(attrs, Slice):  # the author's call has the axes as numbers
            expr = replace(expr, attrs=replace(attrs, axis=len(outer)), origin=None)
        return self._builder.add(expr)

    def _rows(self, index: int) -> tuple[int, ...]:
        return self._builder.shape(self._apart[index])[:-1]

    def _is_row(self, index: int) -> bool:
        """Return whether a value is broadcast to all rows."""
        expr = self._graph[index]
        return expr.is_static and len(expr.static_shape) < 2
