"""Configurations of attention kernels; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttentionConfig:
    """One attention kernel: a threadblock has `rows` of Q, and takes `keys` of them per step.

    `depth` is at least the columns of Q, `columns` at least the columns of V. `stages` counts the
    stages of the pipeline that loads K and V. `splits` threadblocks share the keys.
    """

    family: ClassVar[str] = "attention"

    rows: int
    keys: int
    depth: int
    columns: int
    warps: int
    stages: int
    splits: int = field(default=1, metadata={"absent_at_default": True})

    @property
    def tile(self) -> str:
        """Rows, keys, and the columns of Q and V, as text."""
        return f"{self.rows}x{self.keys}x{self.depth}+{self.columns}"

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return 32 * self.warps

    @property
    def warp_rows(self) -> int:
        """Rows of a warp; it has all keys and columns of its rows."""
        return self.rows // self.warps

    def __str__(self) -> str:
        split = f"/{self.splits}" if self.splits > 1 else ""
        return f"{self.tile}w{self.warps}s{self.stages}{split}"
