"""The steps of recurrent layers in NumPy."""

from __future__ import annotations

import numpy as np

from boltgen.graph.attributes import RecurrentSteps
from boltgen.graph.graph import Array
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.ir.functions import UnaryOp
from boltgen.ir.recurrence import Algebra, Cell, advance


def recurrent(op: Operation, x: Array, weights: Array, *more: Array) -> Array:
    """All hidden states, then the last states if the operator keeps them."""
    attrs = op.attrs.of(RecurrentSteps)
    cell, given = Cell(attrs.cell), dict(zip(attrs.roles, more, strict=True))
    directions, hidden = weights.shape[0], weights.shape[-1]
    steps, batch, _ = x.shape
    gates = x.reshape(steps, batch, directions, cell.gates, hidden)
    found = []
    for place in range(directions):
        columns = slice(place * hidden, (place + 1) * hidden)
        h = c = np.zeros((batch, hidden), x.dtype)
        if "states" in given:
            h, *others = given["states"][:, :, columns]
            c = others[0] if others else c
        bias = given["bias"][place] if "bias" in given else None
        lengths = given.get("lengths", np.full(batch, steps))
        algebra = _algebra(weights[place], cell)
        made = np.zeros((steps, batch, hidden), x.dtype)
        backwards = attrs.backwards or place == 1
        for step in reversed(range(steps)) if backwards else range(steps):
            runs = (step < lengths)[:, None]
            own = [gates[step, :, place, gate] for gate in range(cell.gates)]
            new, new_cell = advance(cell, algebra, own, (h, c), bias)
            made[step] = np.where(runs, new, 0)
            h = np.where(runs, new, h)
            c = c if new_cell is None else np.where(runs, new_cell, c)
        last = [h, c][: cell.states] if attrs.keeps_last else []
        found.append(np.concatenate([made, *(each[None] for each in last)]))
    return np.concatenate(found, axis=-1)


def _algebra(weights: Array, cell: Cell) -> Algebra:
    by_gate = np.split(weights, cell.gates)

    def function(row: UnaryOp, x: Array) -> Array:
        return np.asarray(row.function.value(x)).astype(x.dtype)

    return Algebra(
        multiply=lambda state, gates: [state @ by_gate[gate].T for gate in gates],
        sigmoid=lambda x: function(UnaryOp.SIGMOID, x),
        tanh=lambda x: function(UnaryOp.TANH, x),
        relu=lambda x: function(UnaryOp.RELU, x),
        one=1,
    )
