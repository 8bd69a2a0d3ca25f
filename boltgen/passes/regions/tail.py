"""The region that grows from one anchor: operators, epilogue, and the operands of the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boltgen.ir.elementwise import ElementwiseGraph, Load
from boltgen.problems.region import RowView, Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOperand:
    """The value that a load reads, and its slices for the products of a batch, as in `Operand`."""

    expr: int
    batched: bool
    shared: Shared | None = None
    within: tuple[int, int] | None = None
    view: RowView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A region: indices of its operators, anchor first, and their epilogue.

    `further` are its operators whose results are written besides the result of `output`. `inlined`
    are operators that make operands from the tensors that are loaded instead. If the epilogue has
    rows of slices, each slice has `slice_rows` rows. `refused` has the reason for each operator
    after the anchor that the walk met and left out.
    """

    members: tuple[int, ...]
    output: int
    epilogue: ElementwiseGraph
    operands: tuple[TailOperand, ...]
    further: tuple[int, ...] = ()
    inlined: tuple[int, ...] = ()
    slice_rows: int = 0
    refused: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def loaded(self) -> tuple[tuple[Load, TailOperand], ...]:
        """The loads of the epilogue, and the operand that each reads."""
        return tuple(zip(self.epilogue.loads, self.operands, strict=True))
