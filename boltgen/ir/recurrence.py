"""The equations of recurrent cells, for numbers of any kind: arrays, intervals, values of a graph.

Gates are in ONNX's order. Source: ONNX's Operators.md, LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from boltgen.errors import assert_never


class Cell(Enum):
    """A recurrent cell, by its equations."""

    LSTM = "lstm"
    GRU = "gru"  # the reset gate is applied to a product: PyTorch's, ONNX's linear_before_reset
    GRU_RESET_FIRST = "gru_reset_first"  # the reset gate is applied to the state
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"

    @property
    def gates(self) -> int:
        """The number of its gates: i, o, f, c of an LSTM, z, r, h of a GRU."""
        match self:
            case Cell.LSTM:
                return 4
            case Cell.GRU | Cell.GRU_RESET_FIRST:
                return 3
            case Cell.RNN_TANH | Cell.RNN_RELU:
                return 1
        assert_never(self)

    @property
    def states(self) -> int:
        """The number of its states: the hidden one, and an LSTM's cell state."""
        return 2 if self is Cell.LSTM else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Algebra:
    """The functions of one kind of numbers, which have the operators + - * of Python.

    `multiply` gives the products of a state with the recurrent weights of some gates.
    """

    multiply: Callable[[Any, range], Sequence[Any]]
    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    one: Any

    def sums(self, x: Sequence[Any], state: Any, gates: range) -> Sequence[Any]:
        """Return the products of `state` of some gates, plus the projected inputs of the gates."""
        products = self.multiply(state, gates)
        return [x[gate] + product for gate, product in zip(gates, products, strict=True)]


def advance(
    cell: Cell, algebra: Algebra, x: Sequence[Any], state: tuple[Any, Any], bias: Any = None
) -> tuple[Any, Any]:
    """Return the next hidden state, and the next cell state of an LSTM, else None.

    `state` has both as they are before. `x` has the gates' projected inputs, biases included,
    except for `bias`, which a GRU adds to the product that its reset gate is applied to; None for
    zeros.
    """
    made, (h, c) = algebra, state
    match cell:
        case Cell.LSTM:
            sums = made.sums(x, h, range(4))
            i, o, f = (made.sigmoid(each) for each in sums[:3])
            c = f * c + i * made.tanh(sums[3])
            return o * made.tanh(c), c
        case Cell.GRU:
            of_z, of_r, of_n = made.multiply(h, range(3))
            z, r = made.sigmoid(x[0] + of_z), made.sigmoid(x[1] + of_r)
            new = made.tanh(x[2] + r * (of_n if bias is None else of_n + bias))
            return (made.one - z) * new + z * h, None
        case Cell.GRU_RESET_FIRST:
            z, r = map(made.sigmoid, made.sums(x, h, range(2)))
            (of_n,) = made.sums(x, r * h, range(2, 3))
            return (made.one - z) * made.tanh(of_n) + z * h, None
        case Cell.RNN_TANH | Cell.RNN_RELU:
            (total,) = made.sums(x, h, range(1))
            return (made.tanh if cell is Cell.RNN_TANH else made.relu)(total), None
    assert_never(cell)
