"""Rows of a tensor in another order, written where that costs least. For both IRs.

    (norm(x) W + b)[rows]    ->    norm(x[rows]) W + b

A norm's kernel takes the rows of its operand by integers, and no other one has to: so they are
taken before the nearest norm, or else where they are shortest, and what is behind is done to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boltgen.frontend.graph import Expr, GraphBuilder
from boltgen.frontend.passes.anchor import MATMUL
from boltgen.frontend.passes.epilogue_rules import ELEMENTWISE
from boltgen.frontend.passes.norms import LAYER_NORM, RMS_NORM
from boltgen.frontend.passes.row_moves import TAKE, VIEWS, Rows, is_known

ROW_NORMS = frozenset({LAYER_NORM, RMS_NORM})
_POINTWISE = ELEMENTWISE - VIEWS - {"nn.prelu"}


def row_operands(exprs: Sequence[Expr], expr: Expr) -> tuple[int, ...]:
    """The operands that have the rows of an operator's result; none if it treats no row alone.

    What else it reads all rows share: a matrix, a number, or one for each column.
    """
    if not is_known(expr) or len(expr.static_shape) < 2 or not expr.args:
        return ()
    rows = expr.static_shape[:-1]
    with_rows = tuple(
        arg
        for arg in dict.fromkeys(expr.args)
        if is_known(exprs[arg]) and exprs[arg].static_shape[:-1] == rows
    )
    first, *others = expr.args
    if expr.op == MATMUL:
        is_of_rows = first in with_rows and len(exprs[others[0]].shape or ()) == 2
        return (first,) if is_of_rows and first not in others else ()
    if expr.op in ROW_NORMS:
        is_of_rows = first in with_rows and expr.attrs["axes"] == (-1,)
        return (first,) if is_of_rows and first not in others else ()
    if expr.op not in _POINTWISE:
        return ()
    is_shared = all(_is_of_columns(exprs[arg]) for arg in expr.args if arg not in with_rows)
    return with_rows if is_shared else ()


def _is_of_columns(expr: Expr) -> bool:
    """Whether all rows share an operand: a number, or one for each column."""
    if not expr.is_static:
        return False
    return expr.shape == () or (is_known(expr) and expr.elements == expr.static_shape[-1])


class RowTaking:
    """Writes rows in other orders to a graph under way.

    `authored` says of which expression of the author's one of the new graph does the work. No rows
    are taken before those that are `kept`. `written` has rows in other orders that are there: of a
    source, by the bytes of their numbers.
    """

    def __init__(self, builder: GraphBuilder, kept: frozenset[int]) -> None:
        self.authored: dict[int, int] = {}
        self.written: dict[tuple[int, bytes], int] = {}
        self._builder = builder
        self._kept = kept
        self._redone: set[int] = set()
        self._numbers: dict[bytes, int] = {}

    def turned_back(self, live: frozenset[int]) -> frozenset[int]:
        """The author's operators that were done to taken rows, and have other readers as well."""
        return frozenset(self.authored[each] for each in self._redone & live)

    def count(self, source: int) -> int:
        """The rows of a tensor."""
        return self._builder[source].elements // self._builder.shape(source)[-1]

    def root(self, at: int) -> int:
        """The tensor whose rows a view has, each in its place."""
        expr = self._builder[at]
        while expr.op in VIEWS and is_known(expr) and is_known(self._builder[expr.args[0]]):
            (before,) = expr.args
            if self._builder.shape(before)[-1] != expr.static_shape[-1]:
                break
            at, expr = before, self._builder[before]
        return at

    def reshaped(self, at: int, shape: Sequence[int]) -> int:
        """The same elements in another shape, if it is another one."""
        is_same = self._builder.shape(at) == tuple(shape)
        return at if is_same else self._builder.reshape(at, shape)

    def applied(self, expr: Expr, args: Sequence[int], shape: Sequence[int]) -> int:
        """The author's operator on rows that are counted in other dimensions."""
        origin = None if expr.op == MATMUL else expr.origin
        own = tuple(self._in_few_dimensions(arg, len(shape)) for arg in args)
        return self._builder.add(replace(expr, args=own, shape=tuple(shape), origin=origin))

    def _in_few_dimensions(self, at: int, rank: int) -> int:
        """An operand that all rows share in no more than `rank` dimensions."""
        is_short = len(self._builder[at].shape or ()) <= rank
        return at if is_short else self.reshaped(at, self._builder.shape(at)[-1:])

    def in_order(self, source: int, rows: Rows) -> int:
        """The rows of `source` by their numbers."""
        chain = self._chain(source)
        norms = (n for n, each in enumerate(chain, 1) if self._builder[each].op in ROW_NORMS)
        columns = [self._builder.shape(at)[-1] for at in (source, *map(self._before, chain))]
        steps = next(norms, columns.index(min(columns)))
        return self._done(source, rows, steps)

    def is_before_norm(self, source: int) -> bool:
        """Whether a norm's kernel takes the rows of `source`."""
        return any(self._builder[each].op in ROW_NORMS for each in self._chain(source))

    def _done(self, source: int, rows: Rows, steps: int) -> int:
        """The rows of `source`, taken before so many operators of those that make it as `steps`."""
        key = source, rows.tobytes()
        if key in self.written:
            return self.written[key]
        if steps == 0:
            made = self._taken(source, rows)
        else:
            expr, before = self._builder[source], self._before(source)
            inner = self._done(before, rows, steps - 1)
            *leading, columns = self._builder.shape(inner)
            if expr.op == MATMUL:
                leading = [rows.size]
            inner = self.reshaped(inner, (*leading, columns))
            args = [inner if self.root(arg) == before else arg for arg in expr.args]
            made = self.applied(expr, args, (*leading, expr.static_shape[-1]))
            self._redone.add(source)
        self.written[key] = made
        return made

    def _taken(self, source: int, rows: Rows) -> int:
        columns, numbers = self._builder.shape(source)[-1], np.ascontiguousarray(rows.reshape(-1))
        key = numbers.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self._builder.constant(numbers)
        taken = self._builder.operator(
            TAKE,
            (self.reshaped(source, (self.count(source), columns)), self._numbers[key]),
            (numbers.size, columns),
            self._builder.dtype(source),
            axis=0,
            mode="clip",
        )
        # In the author's shape: results of a model that are reshaped are copied.
        return self.reshaped(taken, (*rows.shape, columns))

    def _chain(self, source: int) -> list[int]:
        """The operators up to `source`, last first, that treat alone each row of one tensor."""
        chain: list[int] = []
        while source in self.authored and self.authored[source] not in self._kept:
            before = self._before(source)
            if before < 0:
                break
            chain.append(source)
            source = before
        return chain

    def _before(self, at: int) -> int:
        """The one tensor of whose rows an operator makes its own; -1 if there is no such one."""
        operands = row_operands(self._builder.exprs, self._builder[at])
        roots = {self.root(arg) for arg in operands}
        return roots.pop() if len(roots) == 1 else -1
