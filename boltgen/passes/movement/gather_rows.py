"""Write rows of a tensor in another order where it costs least. For both IRs.

    (norm(x) W + b)[rows]    ->    norm(x[rows]) W + b

A norm's kernel takes the rows of its operand by integers, and no other one has to: so they are
taken before the nearest norm, or else where they are shortest, and what is behind is done to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from boltgen.graph.attributes import Normalised, Reduce
from boltgen.graph.facts import axis_of
from boltgen.graph.graph import Expr, GraphBuilder
from boltgen.passes.movement.row_permutation import TAKE, Rows, is_known
from boltgen.passes.movement.sink_gathers import ROW_NORMS
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE, OF_AN_AXIS, VIEW

_POINTWISE = ELEMENTWISE - {VIEW} - OF_AN_AXIS
_REDUCTIONS = frozenset({"mean", "sum", "variance"})
# Operators that begin a norm, spelled out or not.
NORMING = ROW_NORMS | _REDUCTIONS
# No norm is spelled by more operators.
_MOST_SPELLED = 16


def row_operands(exprs: Sequence[Expr], expr: Expr) -> tuple[int, ...]:
    """Return the operands with the rows of an operator's result; empty if it mixes rows.

    All rows share its other operands: a matrix, a number, or one number for each column.
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
        is_of_rows = first in with_rows and expr.attrs.of(Normalised).axes == (-1,)
        return (first,) if is_of_rows and first not in others else ()
    if expr.op in _REDUCTIONS:
        is_kept = first in with_rows and expr.attrs.of(Reduce).keepdims
        return (first,) if is_kept and axis_of(expr) == len(rows) else ()
    if expr.op not in _POINTWISE:
        return ()
    is_shared = all(_is_of_columns(exprs[arg]) for arg in expr.args if arg not in with_rows)
    return with_rows if is_shared else ()


def _is_of_columns(expr: Expr) -> bool:
    """Return whether all rows share an operand: a number, or one for each column."""
    if not expr.is_static:
        return False
    return expr.shape == () or (is_known(expr) and expr.elements == expr.static_shape[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Operators that make each row from one row of the tensor `before`; and whether they are a
    norm, or a part of a norm that is spelled out.
    """

    before: int
    is_norm: bool
    is_spelled: bool


class RowTaking:
    """Write rows in other orders to a graph under way.

    `authored` maps an expression of the new graph to the author's expression that it stands for. No
    rows are taken before an author's expression that is `kept`. `written` maps a source and the
    bytes of its rows' numbers to the expression that has the source's rows in that order.
    """

    def __init__(self, builder: GraphBuilder, kept: frozenset[int]) -> None:
        self.authored: dict[int, int] = {}
        self.written: dict[tuple[int, bytes], int] = {}
        self._builder = builder
        self._kept = kept
        self._redone: set[int] = set()
        self._numbers: dict[bytes, int] = {}

    def turned_back(self, live: frozenset[int]) -> frozenset[int]:
        """The author's operators that were applied to gathered rows, and have other readers as
        well.
        """
        return frozenset(self.authored[each] for each in self._redone & live)

    def count(self, source: int) -> int:
        """Return the number of rows of a tensor."""
        return self._builder[source].elements // self._builder.shape(source)[-1]

    def root(self, at: int) -> int:
        """Return the tensor whose rows a view has, each in its place."""
        expr = self._builder[at]
        while expr.op == VIEW and is_known(expr) and is_known(self._builder[expr.args[0]]):
            (before,) = expr.args
            if self._builder.shape(before)[-1] != expr.static_shape[-1]:
                break
            at, expr = before, self._builder[before]
        return at

    def applied(self, expr: Expr, args: Sequence[int], shape: Sequence[int]) -> int:
        """Apply the author's operator to rows that are counted in other dimensions."""
        origin = None if expr.op in {MATMUL, *_REDUCTIONS} else expr.origin
        if expr.op in _REDUCTIONS:
            expr = replace(expr, attrs=replace(expr.attrs.of(Reduce), axis=(-1,)))
        own = tuple(self._in_few_dimensions(arg, len(shape)) for arg in args)
        return self._builder.add(replace(expr, args=own, shape=tuple(shape), origin=origin))

    def _in_few_dimensions(self, at: int, rank: int) -> int:
        """Return an operand that all rows share in no more than `rank` dimensions."""
        is_short = len(self._builder[at].shape or ()) <= rank
        return at if is_short else self._builder.in_shape(at, self._builder.shape(at)[-1:])

    def in_order(self, source: int, rows: Rows) -> int:
        """Gather the rows of `source` by their numbers."""
        chain = self._chain(source)
        normed = None
        for step in chain:
            # A norm that is spelled out takes a mean away, and then squares what is left.
            if step.is_norm and (normed is None or step.is_spelled):
                normed = step.before
            elif normed is not None:
                break
        sources = (source, *(step.before for step in chain))
        shortest = min(sources, key=lambda at: self._builder.shape(at)[-1])
        return self._done(source, rows, shortest if normed is None else normed)

    def is_before_norm(self, source: int) -> bool:
        """Return whether a norm's kernel gathers the rows of `source`."""
        return any(step.is_norm for step in self._chain(source))

    def _done(self, source: int, rows: Rows, end: int) -> int:
        """Compute the rows of `source` from gathered rows of `end`."""
        key = source, rows.tobytes()
        if key in self.written:
            return self.written[key]
        if source == end:
            made = self._taken(source, rows)
        else:
            expr = self._builder[source]
            given = row_operands(self._builder.exprs, expr)
            inner = {arg: self._done(self.root(arg), rows, end) for arg in given}
            leading = self._builder.shape(next(iter(inner.values())))[:-1]
            if expr.op == MATMUL:
                leading = (rows.size,)
            args = [
                self._builder.in_shape(inner[arg], (*leading, self._builder.shape(inner[arg])[-1]))
                if arg in inner
                else arg
                for arg in expr.args
            ]
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
            (self._builder.in_shape(source, (self.count(source), columns)), self._numbers[key]),
            (numbers.size, columns),
            self._builder.dtype(source),
            axis=0,
            mode="clip",
        )
        # In the author's shape: results of a model that are reshaped are copied.
        return self._builder.in_shape(taken, (*rows.shape, columns))

    def _chain(self, source: int) -> list[_Step]:
        """Return the steps that make `source`, the last first; each reads one tensor's rows."""
        chain: list[_Step] = []
        while (step := self._step(source)) is not None:
            chain.append(step)
            source = step.before
        return chain

    def _step(self, source: int) -> _Step | None:
        """Return the operator that makes `source`, or all operators of a spelled norm; None if they
        read rows of two tensors.
        """
        ends, is_norm, is_spelled = {source}, self._builder[source].op in ROW_NORMS, False
        for count in range(_MOST_SPELLED):
            last = max(ends)
            expr = self._builder[last]
            operands = row_operands(self._builder.exprs, expr)
            is_kept = self.authored.get(last, -1) in {-1, *self._kept}
            if is_kept or not operands or (count and expr.op in {MATMUL, *ROW_NORMS}):
                return None
            is_spelled = is_spelled or expr.op in _REDUCTIONS
            ends = ends - {last} | {self.root(arg) for arg in operands}
            if len(ends) == 1:
                is_norm = is_norm or is_spelled
                return _Step(before=ends.pop(), is_norm=is_norm, is_spelled=is_spelled)
        return None
