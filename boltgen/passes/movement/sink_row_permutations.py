"""Sink permutations of rows, such as window partitions, until no kernel has to move them. For both
IRs.

    x + reverse(attention(partition(norm(x)))) -> reverse(y + attention(norm(y))), y = partition(x)

An operator that treats each row alone works in any order of rows: a norm, an elementwise operator,
a product with a matrix. So a permutation of rows sinks below such operators, until the next
permutation cancels or joins it. A remaining permutation becomes integers that gather the rows of a
norm's operand, as in `sink_gathers`. The norm's kernel gathers the rows itself, and also writes the
gathered rows for other readers.

Source of the windows: Liu et al., Swin Transformer, 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from boltgen.graph.attributes import Axis
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, leaves, mapped, renamed
from boltgen.passes.movement.gather_rows import NORMING, RowTaking, row_operands
from boltgen.passes.movement.row_permutation import (
    CONCAT,
    TAKE,
    TRANSPOSE,
    Rows,
    in_order,
    is_known,
    moved_rows,
    moved_tensors,
)
from boltgen.passes.regions.anchor import MATMUL

# Moves that are kernels, but for slices, which TVM fuses into what joins them.
_KERNELS = frozenset({TRANSPOSE, TAKE, CONCAT})
# A library carries the integers, 4 MB of them at most for each order: 300 images of 56 x 56 tokens.
_MOST_ROWS = 1 << 20


def with_rows_in_place(graph: Graph) -> Graph:
    """Return `graph` with fewer permutations of rows if there is a way; else itself."""
    if not any(expr.op in _KERNELS for expr in graph.exprs):
        return graph
    kept: frozenset[int] = frozenset()
    while True:
        walk = _Walk(graph, kept)
        made = walk.run()
        if not walk.turned_back:
            return made if _kernels(made) < _kernels(graph) else graph
        kept |= walk.turned_back


def _kernels(graph: Graph) -> int:
    """Count the views and gathers that are kernels: all except gathers of a norm's operand."""
    return sum(
        expr.op in _KERNELS and not (expr.op == TAKE and _is_of_norm(graph, index))
        for index, expr in enumerate(graph.exprs)
    )


def _is_of_norm(graph: Graph, index: int) -> bool:
    """Return whether a norm reads these rows, directly or through a reshape that keeps them."""
    columns, pending = (graph[index].shape or ())[-1:], [index]
    while pending:
        value = pending.pop()
        for each in graph.consumers[value]:
            if graph[each].op in NORMING and graph[each].args[0] == value:
                return True
            if graph[each].op == "reshape" and (graph[each].shape or ())[-1:] == columns:
                pending.append(each)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """A tensor whose rows are rows of `source`, an expression of the new graph, by number.

    It is `plain` where its author's moves make it of values that are written anyway; so many of
    these are kernels as `kernels` says.
    """

    source: int
    rows: Rows
    plain: bool = False
    kernels: int = 0

    def is_whole(self, count: int) -> bool:
        """Return whether it has each of so many rows once."""
        rows = self.rows.reshape(-1)
        return rows.size == count and bool((np.bincount(rows, minlength=count) == 1).all())

    def is_in_order(self, count: int) -> bool:
        """Return whether it has each of so many rows in its place."""
        rows = self.rows.reshape(-1)
        return rows.size == count and np.array_equal(rows, np.arange(count))

    def is_as(self, other: _Moved) -> bool:
        """Return whether both have their rows in the same order."""
        return np.array_equal(self.rows.reshape(-1), other.rows.reshape(-1))


class _Walk:
    """One graph under way: `_names` has the written values, `_moved` the values that are not
    written yet.

    No rows are taken before the author's operators that are `kept`; `turned_back` are others that
    should be.
    """

    def __init__(self, graph: Graph, kept: frozenset[int]) -> None:
        self.turned_back: frozenset[int] = frozenset()
        self._graph = graph
        self._builder = GraphBuilder()
        self._rows = RowTaking(self._builder, kept)
        self._names: dict[int, int] = {}
        self._moved: dict[int, _Moved] = {}

    def run(self) -> Graph:
        """Rewrite the whole graph."""
        for index, expr in enumerate(self._graph.exprs):
            moved = self._moves(expr) or self._behind(index, expr)
            if moved is None:
                joined = self._side_by_side(expr)
                self._names[index] = self._again(index, expr) if joined is None else joined
            elif moved.is_in_order(self._rows.count(moved.source)):
                self._names[index] = self._builder.in_shape(moved.source, expr.static_shape)
            else:
                self._moved[index] = moved
        written = {index: self._written(index) for index in self._graph.escaping}
        results = mapped(self._graph.results, written)
        whole = Graph(tuple(self._builder.exprs), frozenset(leaves(results)), results)
        self.turned_back = self._rows.turned_back(whole.live)
        return self._builder.graph(results)

    def _again(self, index: int, expr: Expr) -> int:
        """Write an operator as its author has it."""
        for arg in expr.args:
            self._written(arg)
        made = self._builder.add(renamed(expr, self._names))
        self._rows.authored[made] = index
        return made

    def _of(self, index: int) -> _Moved:
        """Return the rows of an author's value, in order if it is written."""
        if index in self._names:
            rows = in_order(self._graph[index].static_shape)
            return _Moved(source=self._rows.root(self._names[index]), rows=rows, plain=True)
        return self._moved[index]

    def _moves(self, expr: Expr) -> _Moved | None:
        """Return the rows after an operator that keeps them whole and permutes them."""
        tensors = moved_tensors(self._graph, expr)
        if not tensors or self._graph[tensors[0]].op == CONSTANT:
            return None
        if prod(expr.static_shape[:-1]) > _MOST_ROWS:
            return None
        given = [self._of(arg) for arg in tensors]
        rows = None
        if len({each.source for each in given}) == 1:
            rows = moved_rows(self._graph, expr, [each.rows for each in given])
        if rows is None:
            return None
        made = _Moved(
            source=given[0].source,
            rows=np.ascontiguousarray(rows),
            plain=all(each.plain for each in given),
            kernels=max(each.kernels for each in given) + (expr.op in _KERNELS),
        )
        is_written = all(arg in self._names for arg in tensors)
        is_in_place = is_written and made.is_in_order(self._rows.count(made.source))
        return None if is_in_place else made

    def _side_by_side(self, expr: Expr) -> int | None:
        """Join rows of one source side by side in longer rows, as for four neighbouring tokens that
        are merged: gather all of them at once, if they would be moved anyway.
        """
        if expr.op != CONCAT or not any(arg in self._moved for arg in expr.args):
            return None
        if not is_known(expr) or not all(is_known(self._graph[arg]) for arg in expr.args):
            return None
        given = [self._of(arg) for arg in expr.args]
        is_last = expr.attrs.of(Axis).at(len(expr.static_shape)) == given[0].rows.ndim
        is_one = len({each.source for each in given}) == 1 and not all(x.plain for x in given)
        if not is_last or not is_one:
            return None
        rows = np.stack([each.rows for each in given], axis=-1)
        if rows.size > _MOST_ROWS:
            return None
        return self._builder.in_shape(self._rows.in_order(given[0].source, rows), expr.static_shape)

    def _behind(self, index: int, expr: Expr) -> _Moved | None:
        """Apply an operator that treats each row alone, and permute the rows after it."""
        if expr.pinned or not any(arg in self._moved for arg in expr.args):
            return None
        tensors = row_operands(self._graph.exprs, expr)
        if not tensors or any(arg in self._moved for arg in expr.args if arg not in tensors):
            return None
        given = {arg: self._of(arg) for arg in tensors}
        order = next((each for each in given.values() if self._is_order_of(each, given)), None)
        if order is None:
            return None
        leading = self._builder.shape(order.source)[:-1]
        if expr.op == MATMUL:
            leading = (prod(leading),)
        args = []
        for arg in expr.args:
            source = self._in_order_of(given[arg], order) if arg in given else None
            if source is None:
                args.append(self._written(arg))
            else:
                args.append(self._builder.in_shape(source, (*leading, self._columns(source))))
        made = self._rows.applied(expr, args, (*leading, expr.static_shape[-1]))
        self._rows.authored[made] = index
        return replace(order, source=made, plain=False)

    def _columns(self, source: int) -> int:
        return self._builder.shape(source)[-1]

    def _is_order_of(self, order: _Moved, given: Mapping[int, _Moved]) -> bool:
        """Return whether all of `given` are written in the order of one's source.

        It moves no rows for this that another reader does not need in that order.
        """
        count = self._rows.count(order.source)
        if order.is_in_order(count) or not order.is_whole(count):
            return False
        return all(self._in_order_of(each, order) is not None for each in given.values())

    def _in_order_of(self, x: _Moved, order: _Moved) -> int | None:
        """Return the rows of `x` in the order of the source of `order`; None if no value has them
        so.
        """
        if x.is_as(order) and self._rows.count(x.source) == x.rows.size:
            return x.source
        wanted = x.rows.reshape(-1)[np.argsort(order.rows.reshape(-1))]
        return self._rows.written.get((x.source, wanted.tobytes()))

    def _written(self, index: int) -> int:
        """Return a value's expression in the new graph, its rows in its author's order."""
        if index in self._names:
            return self._names[index]
        moved, expr = self._moved[index], self._graph[index]
        key = moved.source, moved.rows.tobytes()
        if key not in self._rows.written and self._is_author_s(moved):
            for arg in expr.args:
                self._written(arg)
            self._rows.written[key] = self._builder.add(renamed(expr, self._names))
        made = self._rows.in_order(moved.source, moved.rows)
        self._names[index] = self._builder.in_shape(made, expr.static_shape)
        return self._names[index]

    def _is_author_s(self, moved: _Moved) -> bool:
        """Return whether the author's own operators make a value best."""
        if not moved.plain or not moved.is_whole(self._rows.count(moved.source)):
            return moved.plain
        return moved.kernels < 2 and not self._rows.is_before_norm(moved.source)
