"""The region that grows from one anchor: operators, epilogue, and the operands of the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.region import RowView, Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOperand:
    """The value that a load reads, and its slices for the products of a batch, as of `Operand`."""

    expr: int
    batched: bool
    shared: Shared | None = None
    within: tuple[int, int] | None = None
    view: RowView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A region: indices of its operators, anchor first, and the epilogue that they amount to.

    `further` are those of its operators whose results are written besides that of `output`.
    `inlined` are operators that make operands of what is loaded in their place. Where the epilogue
    has rows of slices, each is of so many rows as `slice_rows`. `refused` has the reason for each
    operator after the anchor that the walk met and left out.
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
    def results(self) -> tuple[int, ...]:
        """The operators whose results are written: D's first."""
        return (self.output, *self.further)
