"""Configurations of kernels for few rows; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.ir.dtypes import Layout
from boltgen.problems.gemm.problem import Gemm


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SkinnyConfig:
    """One kernel: a threadblock has `rows` of A, `columns` of B, and `warps` that divide K.

    `steps` of K are in flight from memory to registers at once.
    """

    family: ClassVar[str] = "skinny"

    rows: int
    columns: int
    warps: int
    steps: int

    @property
    def tile(self) -> str:
        """Rows and columns, as text."""
        return f"{self.rows}x{self.columns}"

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return 32 * self.warps

    def depth(self, problem: Gemm) -> int:
        """Return the elements of K per step of a warp: 16 bytes of each of four lanes, or 16 rows.

        Packed weights give sixteen numbers to each of four lanes.

        Source: templates/include/boltgen/skinny.h and skinny_packed.h, SkinnyStep::kDepth.
        """
        if problem.weights is not None:
            return 64
        return 32 if problem.b_layout is Layout.COLUMN else 16

    def round(self, problem: Gemm) -> int:
        """Return the elements of K that all warps together have in flight."""
        return self.steps * self.warps * self.depth(problem)

    def __str__(self) -> str:
        return f"{self.tile}w{self.warps}s{self.steps}"
