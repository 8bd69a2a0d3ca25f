"""The oracle of recurrent layers: each step in FP64, and the bounds of a correct kernel's.

A step's hidden state is rounded to the type that the next step multiplies. Where a correct kernel
may round it otherwise, both neighbours are carried on, as an interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boltgen.errors import InputError
from boltgen.ir.elementwise import BinaryOp, Unary
from boltgen.ir.functions import Array, UnaryOp
from boltgen.ir.interval import (
    BINARY_FUNCTIONS,
    Interval,
    binary_image,
    enclose,
    evaluate,
    round_unbounded,
    unary_image,
)
from boltgen.ir.recurrence import Algebra, advance
from boltgen.problems.accumulation import accumulation_rounding
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.reference import (
    AnyArray,
    Enclosure,
    broadcast,
    enclosed_store,
    shaped,
)
from boltgen.problems.workload import Layer


@dataclass(frozen=True, slots=True)
class _Number:
    """Exact values, and the ends between which a correct kernel's lie."""

    exact: Array
    ends: Interval

    @classmethod
    def of(cls, exact: Array) -> _Number:
        return cls(exact, Interval(exact, exact))

    def _with(self, op: BinaryOp, other: _Number) -> _Number:
        exact = np.asarray(BINARY_FUNCTIONS[op](self.exact, other.exact))
        return _Number(exact, binary_image(op, self.ends, other.ends))

    def __add__(self, other: _Number) -> _Number:
        return self._with(BinaryOp.ADD, other)

    def __sub__(self, other: _Number) -> _Number:
        return self._with(BinaryOp.SUBTRACT, other)

    def __mul__(self, other: _Number) -> _Number:
        return self._with(BinaryOp.MULTIPLY, other)

    def where(self, condition: AnyArray, other: _Number) -> _Number:
        """Itself where a condition of each row holds, else `other`."""
        rows = condition[:, None]
        low = np.where(rows, self.ends.low, other.ends.low)
        high = np.where(rows, self.ends.high, other.ends.high)
        return _Number(np.where(rows, self.exact, other.exact), Interval(low, high))


def enclose_steps(layer: Layer, a: AnyArray, inputs: LayerInputs) -> tuple[Enclosure, ...]:
    """Enclose the results of a recurrent layer.

    Raises:
        InputError: an array's shape or dtype is not what the problem takes.
    """
    problem = layer.problem
    assert isinstance(problem, Recurrent)
    x = shaped("a", a, (problem.a_shape,), problem.in_dtype, is_matrix=False)
    given = _given(problem, inputs.further)
    after = broadcast(layer.epilogue, problem.d_shape, False, inputs.operands, problem.slice_rows)
    x = x.reshape(*problem.a_shape[:2], problem.directions, problem.cell.gates, problem.hidden)
    found = [_direction(problem, place, x[:, :, place], given) for place in range(x.shape[2])]
    exact, low, high = (
        np.concatenate([np.stack([pick(each) for each in steps]) for steps in found], axis=-1)
        for pick in (_exact, _low, _high)
    )
    nodes = evaluate(layer.epilogue, exact, after)
    images = enclose(layer.epilogue, Interval(low, high), after)
    return tuple(
        enclosed_store(problem, each, nodes[each.x], images[each.x])
        for each in layer.epilogue.results
    )


def _exact(number: _Number) -> Array:
    return number.exact


def _low(number: _Number) -> Array:
    return number.ends.low


def _high(number: _Number) -> Array:
    return number.ends.high


def _given(problem: Recurrent, arrays: Sequence[AnyArray]) -> Mapping[str, Array]:
    """The further inputs in FP64, by name."""
    wanted = problem.further_inputs
    if len(arrays) != len(wanted):
        raise InputError(
            f"{len(arrays)} further inputs; {problem.short} takes "
            f"{', '.join(each.field for each in wanted)}"
        )
    return {
        each.field: shaped(each.field, array, (each.shape,), each.dtype, is_matrix=False)
        for each, array in zip(wanted, arrays, strict=True)
    }


def _direction(
    problem: Recurrent, place: int, x: Array, given: Mapping[str, Array]
) -> list[_Number]:
    """The hidden states of all steps of one direction, then the last states that D has."""
    columns = slice(place * problem.hidden, (place + 1) * problem.hidden)
    zeros = np.zeros((problem.batch_rows, problem.hidden))
    h, c = _Number.of(zeros), _Number.of(zeros)
    if "states" in given:
        h, *others = (_Number.of(each) for each in given["states"][:, :, columns])
        c = others[0] if others else c
    bias = _Number.of(given["bias"][place]) if "bias" in given else None
    lengths = given.get("lengths", np.full(problem.batch_rows, problem.steps))
    algebra = _algebra(problem, given["weights"][place])
    nothing, made = _Number.of(zeros), [_Number.of(zeros)] * problem.steps
    backwards = problem.backwards or place == 1
    for step in _order(problem.steps, backwards=backwards):
        gates = [_Number.of(x[step, :, gate]) for gate in range(problem.cell.gates)]
        new, cell = advance(problem.cell, algebra, gates, (h, c), bias)
        runs = step < lengths
        made[step] = new.where(runs, nothing)
        h = _rounded(problem, new).where(runs, h)
        c = cell.where(runs, c) if cell is not None else c
    return [*made, *(h, c)[: problem.last_states]]


def _order(steps: int, *, backwards: bool) -> Iterator[int]:
    yield from reversed(range(steps)) if backwards else range(steps)


def _rounded(problem: Recurrent, number: _Number) -> _Number:
    """The number as the next step multiplies it."""
    dtype = problem.in_dtype
    exact = number.exact.astype(dtype.numpy).astype(np.float64)
    ends = (round_unbounded(end, dtype) for end in (number.ends.low, number.ends.high))
    return _Number(exact, Interval(*ends))


def _algebra(problem: Recurrent, weights: Array) -> Algebra:
    """The arithmetic of a kernel; `weights` are of one direction."""
    rounding = accumulation_rounding(problem.step)
    hidden = problem.hidden

    def multiply(state: _Number, gates: range) -> list[_Number]:
        # A product takes the state as it is stored; one that is multiplied at once is rounded too.
        state = _rounded(problem, state)
        found = []
        for gate in gates:
            right = weights[gate * hidden : (gate + 1) * hidden].T
            exact, low, high = state.exact, state.ends.low, state.ends.high
            middle, off = (low + high) / 2, (high - low) / 2
            around, carried = middle @ right, off @ np.abs(right)
            magnitude = (np.abs(middle) + off) @ np.abs(right)
            error = carried + rounding.relative * magnitude
            error += np.where(magnitude > 0.0, rounding.absolute, 0.0)
            error = np.where(magnitude + error >= rounding.overflow, np.inf, error)
            found.append(_Number(exact @ right, Interval(around - error, around + error)))
        return found

    def function(op: UnaryOp, number: _Number) -> _Number:
        exact = np.asarray(op.function.value(number.exact))
        return _Number(exact, unary_image(Unary(op, 0), number.ends))

    return Algebra(
        multiply=multiply,
        sigmoid=lambda number: function(UnaryOp.SIGMOID, number),
        tanh=lambda number: function(UnaryOp.TANH, number),
        relu=lambda number: function(UnaryOp.RELU, number),
        one=_Number.of(np.ones(())),
    )
