"""Write out the steps of recurrent layers that no kernel computes, or none as fast.

    recurrent(a, weights, ...), as of `problems.recurrent`

No IR has this operator. IR-neutral.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boltgen.errors import InvalidProblemError, ModelImportError
from boltgen.graph.attributes import RecurrentSteps
from boltgen.graph.graph import RECURRENT, Expr, Graph, GraphBuilder, Noted, written_anew
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.ir.recurrence import Algebra, Cell, advance
from boltgen.passes.regions.anchor import recurrent_problem
from boltgen.passes.regions.products import Rejects
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload

# More steps than these stay in one kernel, however long it takes: each is four launches, and TVM
# compiles a thousand of them for minutes.
MOST_WRITTEN = 64
# The written steps are to be so much faster: their times leave out what the host does to launch.
_GAIN = 2.0


def without_rejected(
    graph: Graph, rejects: Rejects, precision: DType | None, costs: GraphCosts | None
) -> Noted:
    """Return `graph` with the steps of each layer that no kernel computes in `precision`, or in the
    graph's own types if it is None.

    By `costs` a layer of few steps is also written out where its kernel takes twice as long: in
    each step one of its threadblocks reads all weights, where a matmul has all SMs for that.
    """
    notes: dict[str, None] = {}

    def reason_of(expr: Expr) -> str | None:
        try:
            dtype = precision or DType(graph[expr.args[0]].dtype)
            problem = recurrent_problem(graph, expr, dtype, dtype)
            reason, name = rejects(Workload.of(problem)), problem.short
            if reason is None and costs is not None:
                reason = _slower(problem, costs)
        except (InvalidProblemError, ValueError) as error:
            reason, name = str(error), RECURRENT
        if reason is not None:
            notes[f"The steps of {name} are written out: {reason}"] = None
        return reason

    kept = {
        index
        for index, expr in enumerate(graph.exprs)
        if expr.op == RECURRENT and reason_of(expr) is None
    }
    return Noted(_rewritten(graph, kept), tuple(notes))


def _slower(problem: Recurrent, costs: GraphCosts) -> str | None:
    """Return that the written steps are faster than the kernel, or None."""
    if isinstance(problem.steps, Dim) or isinstance(problem.batch_rows, Dim):
        return None
    count = problem.steps * problem.directions
    if count > MOST_WRITTEN or problem.has_lengths:
        return None
    found = costs.kernels_us([Workload.of(problem), Workload.of(problem.step)])
    whole_us, product_us = found.times_us
    launches, tensors = _BETWEEN.get(problem.cell, _BETWEEN_OTHERS)
    state_bytes = problem.batch_rows * problem.hidden * problem.in_dtype.size_bytes
    step_us = product_us + costs.move_us(tensors * state_bytes, launches)
    if whole_us <= _GAIN * count * step_us:
        return None
    return (
        f"one kernel takes {whole_us:.0f} us, {count} steps of {step_us:.1f} us take "
        f"{count * step_us:.0f} us ({found.origin})"
    )


def without_recurrent(graph: Graph) -> Graph:
    """Return `graph` with the steps of each layer that is left."""
    return _rewritten(graph, set())


def _rewritten(graph: Graph, kept: set[int]) -> Graph:
    if all(expr.op != RECURRENT or index in kept for index, expr in enumerate(graph.exprs)):
        return graph

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr | int:
        return _steps(builder, expr) if expr.op == RECURRENT and index not in kept else expr

    return written_anew(graph, write)


# Launches between the products of two steps, and the tensors of a state's size that they read and
# write: a copy of the inputs, the gates of a state each.
_BETWEEN = {Cell.LSTM: (3, 16), Cell.GRU: (1, 8), Cell.GRU_RESET_FIRST: (4, 16)}
_BETWEEN_OTHERS = (1, 2)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the graph under way."""

    builder: GraphBuilder
    index: int

    def _with(self, name: str, other: _Value) -> _Value:
        return _Value(self.builder, self.builder.elementwise(name, self.index, other.index))

    def __add__(self, other: _Value) -> _Value:
        return self._with("add", other)

    def __sub__(self, other: _Value) -> _Value:
        return self._with("subtract", other)

    def __mul__(self, other: _Value) -> _Value:
        return self._with("multiply", other)

    def apply(self, name: str) -> _Value:
        """An elementwise operator of it."""
        return _Value(self.builder, self.builder.elementwise(name, self.index))

    def where(self, truths: int, other: _Value) -> _Value:
        """Itself where `truths` hold, and another value elsewhere."""
        return _Value(self.builder, self.builder.where(truths, self.index, other.index))

    def part(self, axis: int, begin: int, end: int) -> _Value:
        """Neighbours along an axis."""
        return _Value(self.builder, self.builder.slice(self.index, axis, begin, end))

    def reshaped(self, *shape: int) -> _Value:
        """The same elements in another shape."""
        return _Value(self.builder, self.builder.reshape(self.index, shape))


def _steps(builder: GraphBuilder, expr: Expr) -> int:
    """Write the operators of all steps; the result is the layer's."""
    x, weights, *more = (_Value(builder, arg) for arg in expr.args)
    given = dict(zip(expr.attrs.of(RecurrentSteps).roles, more, strict=True))
    steps, batch, columns = builder.shape(x.index)
    if isinstance(steps, Dim) or isinstance(batch, Dim):
        cell = expr.attrs.of(RecurrentSteps).cell
        raise ModelImportError(
            f"a recurrent layer ({cell}) has {steps} steps of {batch} sequences, and no kernel "
            "computes it; TVM needs fixed numbers of both: give them with --shape"
        )
    directions, _, hidden = builder.shape(weights.index)
    of_direction = columns // directions
    found = []
    for place in range(directions):
        whole = directions == 1
        own = x if whole else x.part(2, place * of_direction, (place + 1) * of_direction)
        found.append(_direction(expr, place, own, weights, given))
    parts = [
        found[0][step] if directions == 1 else _joined(builder, [each[step] for each in found], 1)
        for step in range(len(found[0]))
    ]
    rows = [each.reshaped(1, batch, directions * hidden) for each in parts]
    made = _joined(builder, rows, 0) if len(rows) > 1 else rows[0]
    return made.index


def _joined(builder: GraphBuilder, values: Sequence[_Value], axis: int) -> _Value:
    return _Value(builder, builder.concat([each.index for each in values], axis))


def _direction(
    expr: Expr, place: int, x: _Value, weights: _Value, given: dict[str, _Value]
) -> list[_Value]:
    """The hidden states of one direction, (batch, hidden) each, then the last states."""
    attrs, builder = expr.attrs.of(RecurrentSteps), x.builder
    cell = Cell(attrs.cell)
    steps, batch, _ = builder.shape(x.index)
    directions, width, hidden = builder.shape(weights.index)
    dtype = builder.dtype(x.index)

    def filled(number: float, *shape: int) -> _Value:
        return _Value(builder, builder.constant(np.full(shape, number, DType(dtype).numpy)))

    zeros = filled(0.0, batch, hidden)
    h = c = zeros
    if "states" in given:
        own = given["states"].part(2, place * hidden, (place + 1) * hidden)
        h, *others = (own.part(0, i, i + 1).reshaped(batch, hidden) for i in range(cell.states))
        c = others[0] if others else c
    bias = given["bias"].part(0, place, place + 1) if "bias" in given else None
    own = weights.part(0, place, place + 1) if directions > 1 else weights
    right = builder.permute_dims(own.reshaped(width, hidden).index, (1, 0))
    algebra = _algebra(_Value(builder, right), filled(1.0))
    lengths = given["lengths"].reshaped(batch, 1) if "lengths" in given else None
    made = [zeros] * steps
    backwards = attrs.backwards or place == 1
    for step in reversed(range(steps)) if backwards else range(steps):
        gates = _Gates(x.part(0, step, step + 1).reshaped(batch, width), hidden)
        new, new_cell = advance(cell, algebra, gates, (h, c), bias)
        made[step] = new
        if lengths is not None:
            runs = _runs(builder, step, lengths)
            made[step] = new.where(runs, zeros)
            new = new.where(runs, h)
            new_cell = None if new_cell is None else new_cell.where(runs, c)
        h, c = new, c if new_cell is None else new_cell
    return [*made, *([h, c][: cell.states] if attrs.keeps_last else [])]


def _runs(builder: GraphBuilder, step: int, lengths: _Value) -> int:
    """Whether each sequence has a step, (batch, 1)."""
    dtype = builder.dtype(lengths.index)
    place = builder.constant(np.array(step, dtype))
    return builder.operator("less", (place, lengths.index), builder.shape(lengths.index), "bool")


@dataclass(frozen=True, slots=True)
class _Gates(Sequence[_Value]):
    """The gates' projected inputs in one step, side by side in a row for each sequence."""

    row: _Value
    hidden: int

    def __len__(self) -> int:
        return self.row.builder.shape(self.row.index)[1] // self.hidden

    def __getitem__(self, gate: Any) -> Any:
        return self.of(range(gate, gate + 1))

    def of(self, gates: range) -> _Value:
        """The inputs of neighbouring gates."""
        if len(gates) == len(self):
            return self.row
        return self.row.part(1, gates.start * self.hidden, gates.stop * self.hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operators(Algebra):
    """The operators of a graph; `right` has the recurrent weights' columns of all gates."""

    right: _Value

    def sums(self, x: Sequence[Any], state: Any, gates: range) -> Sequence[Any]:
        """Return the gates of products and inputs; they are added before they are split.

        TVM adds in the matmul's kernel then, and copies the inputs of a step once.
        """
        assert isinstance(x, _Gates)
        return _split(_product(self.right, state, gates) + x.of(gates), len(gates))


def _product(right: _Value, state: _Value, gates: range) -> _Value:
    """Multiply a state with the columns of neighbouring gates."""
    builder = state.builder
    hidden, width = builder.shape(right.index)
    if len(gates) * hidden != width:
        right = right.part(1, gates.start * hidden, gates.stop * hidden)
    made = builder.matmul(state.index, right.index, builder.dtype(state.index))
    return _Value(builder, made)


def _split(row: _Value, count: int) -> list[_Value]:
    """Split the columns of a row into `count` parts of one width."""
    if count == 1:
        return [row]
    width = row.builder.shape(row.index)[1] // count
    return [row.part(1, i * width, (i + 1) * width) for i in range(count)]


def _algebra(right: _Value, one: _Value) -> Algebra:
    return _Operators(
        right=right,
        multiply=lambda state, gates: _split(_product(right, state, gates), len(gates)),
        sigmoid=lambda x: x.apply("sigmoid"),
        tanh=lambda x: x.apply("tanh"),
        relu=lambda x: x.apply("nn.relu"),
        one=one,
    )
