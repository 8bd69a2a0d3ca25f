"""The steps of recurrent layers: LSTM, GRU and RNN, whose inputs are projected already.

Arrow: like `problem`. The equations are in `ir.recurrence`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, IndexType, alignment_elements
from boltgen.ir.functions import Array
from boltgen.ir.recurrence import Cell
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import FurtherInput
from boltgen.problems.without_b import WithoutB

# Weights are drawn from as little of 1 / hidden as keeps a step from making errors larger, so that
# the bounds of long sequences stay useful.
_GAIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent(WithoutB):
    """All steps of a recurrent layer, in one direction or in both.

    A: (steps, batch, directions * gates * hidden), the inputs times their weights, with all biases
    but the GRU's below. D: (steps, batch, directions * hidden), the hidden states. With
    `keeps_last`, D has the last hidden state behind them, and of an LSTM the last cell state, as
    one or two more steps.

    `weights`: (directions, gates * hidden, hidden). `bias`: (directions, hidden), which a GRU adds
    before its reset gate. `states`: (1 or 2, batch, directions * hidden), the initial hidden state
    and an LSTM's cell state. `lengths`: (batch,), INT32: from that step on a sequence keeps its
    states, and its hidden states in D are 0. The last three are optional; without them they are
    zeros, zeros, and `steps`.

    The second direction goes from the last step to the first; so does a single one that is
    `backwards`. The hidden state is rounded to `in_dtype` in each step; the cell state is FP32.

    Raises:
        InvalidProblemError: an extent is out of range, no kernel multiplies its types, there are
            more than two directions, two that go `backwards`, or a bias that the cell has not.
    """

    kind: ClassVar[str] = "recurrent"

    cell: Cell
    steps: int
    batch_rows: int
    hidden: int
    directions: int = 1
    backwards: bool = False
    has_bias: bool = False
    has_states: bool = False
    has_lengths: bool = False
    keeps_last: bool = False
    in_dtype: DType = DType.F16
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        check_positive(self, ("steps", "batch_rows", "hidden", "directions"))
        check_dtypes(self)
        if self.directions > 2 or (self.backwards and self.directions > 1):
            raise InvalidProblemError(
                f"Recurrent: directions={self.directions}, backwards={self.backwards}; a layer has "
                "one direction, or both"
            )
        if self.has_bias and self.cell is not Cell.GRU:
            raise InvalidProblemError(
                f"Recurrent: {self.cell.value} with has_bias=True; {Cell.GRU.value} alone adds a "
                "bias to a product"
            )

    @property
    def step(self) -> Gemm:
        """The matrix product of one step and direction."""
        return Gemm(
            m=self.batch_rows,
            n=self.cell.gates * self.hidden,
            k=self.hidden,
            in_dtype=self.in_dtype,
            out_dtype=self.out_dtype,
        )

    @property
    def further_inputs(self) -> tuple[FurtherInput, ...]:
        """The weights, then the bias, the initial states and the lengths, as far as it has them."""
        columns = self.directions * self.hidden
        most = _GAIN / self.hidden
        weights = (self.directions, self.cell.gates * self.hidden, self.hidden)
        found = [FurtherInput("weights", weights, self.in_dtype, most=most)]
        if self.has_bias:
            found.append(FurtherInput("bias", (self.directions, self.hidden), self.in_dtype))
        if self.has_states:
            shape = (self.cell.states, self.batch_rows, columns)
            found.append(FurtherInput("states", shape, self.in_dtype))
        if self.has_lengths:
            lengths = IndexType.INT32
            found.append(FurtherInput("lengths", (self.batch_rows,), lengths, most=self.steps))
        return tuple(found)

    @property
    def storable(self) -> frozenset[DType]:
        """The type of its operands, and FP32."""
        return frozenset({self.in_dtype, DType.F32})

    @property
    def rows(self) -> int:
        """The rows of D: of each step, and of each last state."""
        return (self.steps + self.last_states) * self.batch_rows

    @property
    def last_states(self) -> int:
        """The number of last states in D."""
        return self.cell.states if self.keeps_last else 0

    @property
    def matrix(self) -> tuple[int, int]:
        """The rows of D, and the hidden units of all directions."""
        return self.rows, self.directions * self.hidden

    @property
    def is_matrix(self) -> bool:
        """No: steps follow each other."""
        return False

    @property
    def short(self) -> str:
        """`lstm 50x1x128`, and that both directions are computed."""
        both = ", both directions" if self.directions > 1 else ""
        return f"{self.cell.value} {self.steps}x{self.batch_rows}x{self.hidden}{both}"

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(steps, batch, directions * gates * hidden)."""
        return self.steps, self.batch_rows, self.directions * self.cell.gates * self.hidden

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(steps and last states, batch, directions * hidden)."""
        return self.steps + self.last_states, self.batch_rows, self.directions * self.hidden

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access, at most."""
        return alignment_elements(self.in_dtype, self.hidden)

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.hidden)

    @property
    def flops(self) -> int:
        """Floating-point operations of the recurrent products."""
        return self.steps * self.directions * self.step.flops

    @property
    def a_bytes(self) -> int:
        """The bytes of A, and of all further inputs once."""
        steps, rows, columns = self.a_shape
        return steps * rows * columns * self.in_dtype.size_bytes + sum(
            each.size_bytes for each in self.further_inputs
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_recurrent_args`."""
        return {
            "steps": self.steps,
            "batch": self.batch_rows,
            "hidden": self.hidden,
            "directions": self.directions,
            "backwards": int(self.backwards),
            "last_states": self.last_states,
        }

    @property
    def slice_rows(self) -> int:
        """The rows of a step."""
        return self.batch_rows

    def resized(self, channels: int, filters: int) -> Recurrent:
        """Return the layer of so many columns of A and D."""
        gates = self.cell.gates
        if filters % self.directions or channels != filters * gates:
            raise InvalidProblemError(
                f"Recurrent: {channels} columns of A and {filters} of D; {gates} gates of "
                f"{self.directions} directions make A's"
            )
        return replace(self, hidden=filters // self.directions)

    def product(self, a: Array, b: Array) -> Array:
        """It has none: `problems.recurrent.oracle` goes step by step."""
        del a, b
        raise InvalidProblemError(f"{self.short} is no product: see its oracle")
