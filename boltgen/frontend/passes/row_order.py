"""Rows in other orders, as the windows of images are, where no kernel has to move them. For both
IRs.

    x + reverse(attention(partition(norm(x)))) -> reverse(y + attention(norm(y))), y = partition(x)

What treats each row alone does so in any order: a norm, an elementwise operator, a product with a
matrix. So a move of rows goes behind those, up to where the next one cancels it or joins it, and
what is left of them is integers that take the rows of a norm's operand, as `gathers` has them. The
norm's kernel takes them itself, and writes for others the rows that it has taken.

Source of the windows: Liu et al., Swin Transformer, 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from boltgen.frontend.graph import CONSTANT, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.frontend.passes.anchor import MATMUL
from boltgen.frontend.passes.epilogue_rules import ELEMENTWISE
from boltgen.frontend.passes.norms import LAYER_NORM, RMS_NORM
from boltgen.frontend.passes.row_moves import (
    CONCAT,
    TAKE,
    TRANSPOSE,
    VIEWS,
    Rows,
    in_order,
    is_known,
    keeps_rows,
    moved_rows,
    moved_tensors,
)

_NORMS = frozenset({LAYER_NORM, RMS_NORM})
_POINTWISE = ELEMENTWISE - VIEWS - {"nn.prelu"}
# Moves that are kernels, but for slices, which TVM fuses into what joins them.
_KERNELS = frozenset({TRANSPOSE, TAKE, CONCAT})
# A library carries the integers; these are of 8 images of 3136 tokens in each of 40 layers.
_MOST_ROWS = 1 << 20


def with_rows_in_place(graph: Graph) -> Graph:
    """`graph` with fewer moves of rows, where there is a way; else itself."""
    if not any(expr.op in {TRANSPOSE, TAKE, CONCAT} for expr in graph.exprs):
        return graph
    made = _Walk(graph).run()
    return made if _kernels(made) < _kernels(graph) else graph


def _kernels(graph: Graph) -> int:
    """How many moves are kernels: all but those whose result is what a norm takes."""
    return sum(
        expr.op in _KERNELS and not (expr.op == TAKE and _is_of_norm(graph, index))
        for index, expr in enumerate(graph.exprs)
    )


def _is_of_norm(graph: Graph, index: int) -> bool:
    """Whether a norm is among those that read rows, maybe in another shape."""
    return any(
        (graph[each].op in _NORMS and graph[each].args[0] == index)
        or (graph[each].op in VIEWS and _is_of_norm(graph, each))
        for each in graph.consumers[index]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """A tensor whose rows are those of `source`, an expression of the new graph, by number.

    It is `plain` where its author's moves make it of values that are written anyway; so many of
    these are kernels as `kernels` says.
    """

    source: int
    rows: Rows
    plain: bool = False
    kernels: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it has each row, up to the last one, once."""
        rows = self.rows.reshape(-1)
        return rows.size > 0 and bool((np.bincount(rows) == 1).all())


class _Walk:
    """One graph under way: `_names` has what is written of it, `_moved` what is not so far.

    `_taken` has rows in other orders that are written: of a source, by the bytes of their numbers.
    `_authored` says of which expression of the author's one of the new graph has the rows.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder()
        self._names: dict[int, int] = {}
        self._moved: dict[int, _Moved] = {}
        self._taken: dict[tuple[int, bytes], int] = {}
        self._authored: dict[int, int] = {}
        self._numbers: dict[bytes, int] = {}

    def run(self) -> Graph:
        """The whole graph anew."""
        for index, expr in enumerate(self._graph.exprs):
            moved = self._moves(expr) or self._behind(index, expr)
            joined = self._side_by_side(expr) if moved is None else None
            if joined is not None:
                self._names[index] = joined
            elif moved is None:
                for arg in expr.args:
                    self._written(arg)
                self._names[index] = self._builder.add(renamed(expr, self._names))
                self._authored[self._names[index]] = index
            elif self._is_in_order(moved):
                self._names[index] = self._reshaped(moved.source, expr.static_shape)
            else:
                self._moved[index] = moved
        results = {index: self._written(index) for index in self._graph.escaping}
        return self._builder.graph(mapped(self._graph.results, results))

    def _is_in_order(self, moved: _Moved) -> bool:
        shape = self._builder.shape(moved.source)
        return np.array_equal(moved.rows.reshape(-1), in_order(shape).reshape(-1))

    def _reshaped(self, at: int, shape: Sequence[int]) -> int:
        is_same = self._builder.shape(at) == tuple(shape)
        return at if is_same else self._builder.reshape(at, shape)

    def _root(self, at: int) -> int:
        """What a value of the new graph has the rows of, each in its place."""
        expr = self._builder[at]
        while expr.op in VIEWS and self._builder.shape(expr.args[0])[-1:] == expr.static_shape[-1:]:
            (at,) = expr.args
            expr = self._builder[at]
        return at

    def _rows(self, index: int) -> _Moved:
        """The rows of a value of the author's, in order where it is written."""
        if index in self._names:
            rows = in_order(self._graph[index].static_shape)
            return _Moved(source=self._root(self._names[index]), rows=rows, plain=True)
        return self._moved[index]

    # Moves of rows.

    def _moves(self, expr: Expr) -> _Moved | None:
        """What a move makes of rows, where it keeps them whole and does not leave them in place."""
        tensors = moved_tensors(self._graph, expr)
        if not tensors or self._graph[tensors[0]].op == CONSTANT:
            return None
        if prod(expr.static_shape[:-1]) > _MOST_ROWS:
            return None
        given = [self._rows(arg) for arg in tensors]
        if len({each.source for each in given}) != 1:
            return None
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
        return None if is_written and self._is_in_order(made) else made

    def _side_by_side(self, expr: Expr) -> int | None:
        """Rows of one source side by side in longer ones, as of four neighbouring tokens that are
        merged: all of them taken at once, where they would be moved anyway.
        """
        axis = expr.attrs.get("axis")
        if expr.op != CONCAT or not any(arg in self._moved for arg in expr.args):
            return None
        if not is_known(expr) or not all(is_known(self._graph[arg]) for arg in expr.args):
            return None
        given = [self._rows(arg) for arg in expr.args]
        is_last = isinstance(axis, int) and axis % len(expr.static_shape) == given[0].rows.ndim
        is_one = len({each.source for each in given}) == 1 and not all(x.plain for x in given)
        if not is_last or not is_one:
            return None
        rows = np.stack([each.rows for each in given], axis=-1)
        if rows.size > _MOST_ROWS:
            return None
        return self._reshaped(self._in_order(given[0].source, rows), expr.static_shape)

    # What treats each row alone, before the move of its rows.

    def _behind(self, index: int, expr: Expr) -> _Moved | None:
        """The result of an operator on rows that are moved, as if they were moved after it."""
        if not any(arg in self._moved for arg in expr.args) or not is_known(expr):
            return None
        tensors = self._row_operands(expr)
        if tensors is None:
            return None
        given = {arg: self._rows(arg) for arg in tensors}
        order = self._order(list(given.values()))
        if order is None:
            return None
        shape = self._builder.shape(order.source)
        sources = {}
        for arg, each in given.items():
            source = self._in_order_of(each, order)
            assert source is not None
            sources[arg] = self._reshaped(source, (*shape[:-1], self._builder.shape(source)[-1]))
        made = self._applied(expr, sources)
        self._authored[made] = index
        return replace(order, source=made, plain=False)

    def _row_operands(self, expr: Expr) -> tuple[int, ...] | None:
        """The operands that have the rows of the result; None where it is not made row by row."""
        shape, (first, *others) = expr.static_shape, expr.args
        if expr.op == MATMUL:
            (b,) = others
            is_matrix = b not in self._moved and len(self._graph[b].shape or ()) == 2
            return (first,) if is_matrix and self._has_rows(first, shape) else None
        if expr.op in _NORMS:
            is_plain = expr.attrs["axes"] == (-1,) and not any(arg in self._moved for arg in others)
            return (first,) if is_plain and self._has_rows(first, shape) else None
        if expr.op not in _POINTWISE:
            return None
        tensors = tuple(arg for arg in dict.fromkeys(expr.args) if self._has_rows(arg, shape))
        of_columns = (self._graph[arg] for arg in expr.args if arg not in tensors)
        return tensors if all(_is_of_columns(each, shape) for each in of_columns) else None

    def _has_rows(self, index: int, shape: tuple[int, ...]) -> bool:
        expr = self._graph[index]
        return is_known(expr) and expr.static_shape[:-1] == shape[:-1] and len(shape) > 1

    def _order(self, given: Sequence[_Moved]) -> _Moved | None:
        """The one of `given` in the order of whose source the others are written, or can be read.

        No rows are moved for that which are not moved for another reader.
        """
        for each in given:
            is_moved = each.is_whole and not self._is_in_order(each)
            if is_moved and all(self._in_order_of(other, each) is not None for other in given):
                return each
        return None

    def _in_order_of(self, x: _Moved, order: _Moved) -> int | None:
        """The rows of `x` as the source of `order` has them; None where nothing has them so."""
        if np.array_equal(x.rows.reshape(-1), order.rows.reshape(-1)) and x.is_whole:
            return x.source
        wanted = x.rows.reshape(-1)[np.argsort(order.rows.reshape(-1))]
        return self._taken.get((x.source, wanted.tobytes()))

    def _applied(self, expr: Expr, sources: dict[int, int]) -> int:
        """The operator on these sources, in their shape, and on its other operands."""
        shape = self._builder.shape(next(iter(sources.values())))
        args = tuple(sources[arg] if arg in sources else self._of_columns(arg) for arg in expr.args)
        return self._applied_to(expr, args, (*shape[:-1], expr.static_shape[-1]))

    def _of_columns(self, index: int) -> int:
        """An operand that all rows share, in one dimension, unless it is a matrix."""
        at = self._written(index)
        shape = self._builder[at].shape or ()
        is_matrix = len(shape) == 2 and shape[0] != 1
        return (
            at if len(shape) < 2 or is_matrix else self._reshaped(at, self._builder.shape(at)[-1:])
        )

    def _applied_to(self, expr: Expr, args: tuple[int, ...], shape: tuple[int, ...]) -> int:
        origin = None if expr.op == MATMUL else expr.origin
        return self._builder.add(replace(expr, args=args, shape=shape, origin=origin))

    # Rows that something else reads in the order of their author's.

    def _written(self, index: int) -> int:
        """The expression of a value in the new graph."""
        if index in self._names:
            return self._names[index]
        moved, expr = self._moved[index], self._graph[index]
        key = moved.source, moved.rows.tobytes()
        is_author_s = moved.plain and not (moved.is_whole and self._is_worth_it(moved))
        if key not in self._taken and is_author_s:
            for arg in expr.args:
                self._written(arg)
            self._taken[key] = self._builder.add(renamed(expr, self._names))
        made = self._in_order(moved.source, moved.rows)
        self._names[index] = self._reshaped(made, expr.static_shape)
        return self._names[index]

    def _is_worth_it(self, moved: _Moved) -> bool:
        """Whether a plain value is made otherwise than by its author's moves."""
        chain = self._chain(moved.source)
        return moved.kernels > 1 or any(self._builder[each].op in _NORMS for each in chain)

    def _in_order(self, source: int, rows: Rows) -> int:
        """The rows of `source` by their numbers: taken before a norm, or where they are shortest.

        Between there and `source` nothing else reads a value.
        """
        key = source, rows.tobytes()
        if key in self._taken:
            return self._taken[key]
        chain = self._chain(source)
        place = next(
            (place for place, each in enumerate(chain) if self._builder[each].op in _NORMS), None
        )
        if place is None:
            place = min(
                range(len(chain) + 1), key=lambda n: self._columns_before(source, chain[:n])
            )
            chain = chain[:place]
        else:
            chain = chain[: place + 1]
        return self._redone(source, chain, rows)

    def _columns_before(self, source: int, chain: Sequence[int]) -> int:
        at = self._row_operand(chain[-1]) if chain else source
        return self._builder.shape(at)[-1]

    def _redone(self, source: int, chain: Sequence[int], rows: Rows) -> int:
        """`chain`, whose first makes `source`, done to rows that are taken before its last."""
        key = source, rows.tobytes()
        if key in self._taken:
            return self._taken[key]
        if not chain:
            made = self._take(source, rows)
        else:
            expr, before = self._builder[source], self._row_operand(source)
            inner = self._redone(before, chain[1:], rows)
            shape = (rows.size, expr.static_shape[-1])
            inner = self._reshaped(inner, (rows.size, self._builder.shape(inner)[-1]))
            args = tuple(inner if self._root(arg) == before else arg for arg in expr.args)
            made = self._applied_to(expr, args, shape)
        self._taken[key] = made
        return made

    def _take(self, source: int, rows: Rows) -> int:
        columns = self._builder.shape(source)[-1]
        numbers = np.ascontiguousarray(rows.reshape(-1))
        matrix = self._reshaped(source, (self._builder[source].elements // columns, columns))
        key = numbers.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self._builder.constant(numbers)
        return self._builder.operator(
            TAKE,
            (matrix, self._numbers[key]),
            (numbers.size, columns),
            self._builder.dtype(source),
            axis=0,
            mode="clip",
        )

    def _chain(self, source: int) -> list[int]:
        """The operators up to `source`, last first, each of which treats alone the rows of one
        tensor, and whose results nothing else reads than what reads `source`.
        """
        chain: list[int] = []
        at = source
        while at in self._authored and self._has_one_reader(self._authored[at]):
            before = self._row_operand(at)
            if before < 0:
                break
            chain.append(at)
            at = before
        return chain

    def _row_operand(self, at: int) -> int:
        """The one tensor of whose rows an operator of the new graph makes its own; -1 if none."""
        expr = self._builder[at]
        if not is_known(expr) or expr.op not in {*_NORMS, *_POINTWISE, MATMUL}:
            return -1
        if expr.op in _NORMS or expr.op == MATMUL:
            x, *others = expr.args
            is_row = expr.attrs.get("axes", (-1,)) == (-1,)
            is_matrix = expr.op in _NORMS or len(self._builder[others[0]].shape or ()) == 2
            return self._root(x) if is_row and is_matrix and is_known(self._builder[x]) else -1
        shape = expr.static_shape
        found = {
            self._root(arg) for arg in expr.args if not _is_of_columns(self._builder[arg], shape)
        }
        if len(found) != 1:
            return -1
        (x,) = found
        return x if self._builder.shape(x)[-1] == shape[-1] else -1

    def _has_one_reader(self, index: int) -> bool:
        """Whether all that reads a value of the author's reads it in one order."""
        ends: set[int] = set()
        pending = [index]
        while pending:
            at = pending.pop()
            readers = self._graph.consumers[at]
            moves = [each for each in readers if keeps_rows(self._graph, self._graph[each])]
            pending += moves
            if at in self._graph.escaping or len(moves) < len(readers):
                ends.add(at)
        return len(ends) == 1


def _is_of_columns(expr: Expr, shape: tuple[int, ...]) -> bool:
    """Whether all rows of `shape` share an operand: a number, or one for each column."""
    if not is_known(expr) and expr.shape != ():
        return False
    whole = expr.static_shape
    return len(whole) <= len(shape) and all(extent == 1 for extent in whole[:-1])
