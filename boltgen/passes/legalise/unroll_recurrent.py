"""Write out the steps of recurrent layers that no kernel computes.

    recurrent(a, weights, ...), as of `problems.recurrent`

No IR has this operator. IR-neutral.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boltgen.errors import InvalidProblemError, ModelImportError
from boltgen.graph.attributes import RecurrentSteps, Slice
from boltgen.graph.graph import RECURRENT, Expr, Graph, GraphBuilder, Noted, mapped, renamed
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim
from boltgen.ir.recurrence import Algebra, Cell, advance
from boltgen.passes.regions.anchor import recurrent_problem
from boltgen.passes.regions.products import Rejects
from boltgen.problems.workload import Workload


def without_rejected(graph: Graph, rejects: Rejects, precision: DType | None) -> Noted:
    """Return `graph` with the steps of each layer that no kernel computes in `precision`, or in the
    graph's own types if it is None.
    """
    notes: dict[str, None] = {}

    def reason_of(expr: Expr) -> str | None:
        try:
            dtype = precision or DType(graph[expr.args[0]].dtype)
            problem = recurrent_problem(graph, expr, dtype, dtype)
            reason, name = rejects(Workload.of(problem)), problem.short
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


def without_recurrent(graph: Graph) -> Graph:
    """Return `graph` with the steps of each layer that is left."""
    return _rewritten(graph, set())


def _rewritten(graph: Graph, kept: set[int]) -> Graph:
    if all(expr.op != RECURRENT or index in kept for index, expr in enumerate(graph.exprs)):
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        made = renamed(expr, names)
        if expr.op == RECURRENT and index not in kept:
            names[index] = _steps(builder, made)
        else:
            names[index] = builder.add(made)
    return builder.graph(mapped(graph.results, names))


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

    def part(self, axis: int, begin: int, end: int) -> _Value:
        """Neighbours along an axis."""
        shape = self.builder.shape(self.index)
        axis %= len(shape)
        cut = (*shape[:axis], end - begin, *shape[axis + 1 :])
        dtype = self.builder.dtype(self.index)
        attrs = Slice(axis=axis, begin=begin, end=end)
        made = self.builder.operator("strided_slice", (self.index,), cut, dtype, attrs)
        return _Value(self.builder, made)

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
    shape = list(builder.shape(values[0].index))
    shape[axis] = sum(builder.shape(each.index)[axis] for each in values)
    args = [each.index for each in values]
    dtype = builder.dtype(args[0])
    return _Value(builder, builder.operator("concat", args, tuple(shape), dtype, axis=axis))


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
    algebra = _algebra(builder, _Value(builder, right), filled(1.0))
    lengths = given["lengths"].reshaped(batch, 1) if "lengths" in given else None
    made = [zeros] * steps
    backwards = attrs.backwards or place == 1
    for step in reversed(range(steps)) if backwards else range(steps):
        row = x.part(0, step, step + 1).reshaped(batch, width)
        gates = [row.part(1, i * hidden, (i + 1) * hidden) for i in range(cell.gates)]
        new, new_cell = advance(cell, algebra, gates, (h, c), bias)
        made[step] = new
        if lengths is not None:
            runs = _runs(builder, step, lengths)
            made[step] = _chosen(builder, runs, new, zeros)
            new = _chosen(builder, runs, new, h)
            new_cell = None if new_cell is None else _chosen(builder, runs, new_cell, c)
        h, c = new, c if new_cell is None else new_cell
    return [*made, *([h, c][: cell.states] if attrs.keeps_last else [])]


def _runs(builder: GraphBuilder, step: int, lengths: _Value) -> int:
    """Whether each sequence has a step, (batch, 1)."""
    dtype = builder.dtype(lengths.index)
    place = builder.constant(np.array(step, dtype))
    return builder.operator("less", (place, lengths.index), builder.shape(lengths.index), "bool")


def _chosen(builder: GraphBuilder, runs: int, new: _Value, old: _Value) -> _Value:
    shape, dtype = builder.shape(new.index), builder.dtype(new.index)
    args = (runs, new.index, old.index)
    return _Value(builder, builder.operator("where", args, shape, dtype))


def _algebra(builder: GraphBuilder, right: _Value, one: _Value) -> Algebra:
    """The operators of a graph; `right` has the columns of all gates."""
    hidden = builder.shape(right.index)[0]

    def multiply(state: _Value, gates: range) -> list[_Value]:
        columns = right
        if len(gates) * hidden != builder.shape(right.index)[1]:
            columns = right.part(1, gates.start * hidden, gates.stop * hidden)
        dtype = builder.dtype(state.index)
        product = _Value(builder, builder.matmul(state.index, columns.index, dtype))
        if len(gates) == 1:
            return [product]
        return [product.part(1, i * hidden, (i + 1) * hidden) for i in range(len(gates))]

    return Algebra(
        multiply=multiply,
        sigmoid=lambda x: x.apply("sigmoid"),
        tanh=lambda x: x.apply("tanh"),
        relu=lambda x: x.apply("nn.relu"),
        one=one,
    )
