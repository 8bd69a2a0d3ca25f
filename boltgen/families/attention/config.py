"""Configurations of attention kernels; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttentionConfig:
    """One attention kernel: a threadblock has `rows` of Q, and takes `keys` of them per step.

    `depth` is at least the columns of Q, `columns` at least the columns of V; `stages` counts the
    stages of the pipeline that brings K and V from global memory. As many threadblocks as `splits`
    share the keys. As many warps of a threadblock as `key_warps` have the same rows, and each a
    part of the keys of a step: each key is read from shared memory for more rows at once.
    """

    family: ClassVar[str] = "attention"

    rows: int
    keys: int
    depth: int
    columns: int
    warps: int
    stages: int
    splits: int = field(default=1, metadata={"absent_at_default": True})
    key_warps: int = field(default=1, metadata={"absent_at_default": True})

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
        """Rows of a warp, which has all columns of each."""
        return self.rows * self.key_warps // self.warps

    @property
    def warp_keys(self) -> int:
        """Keys of a warp in a step."""
        return self.keys // self.key_warps

    def __str__(self) -> str:
        split = f"/{self.splits}" if self.splits > 1 else ""
        shared = f"k{self.key_warps}" if self.key_warps > 1 else ""
        return f"{self.tile}w{self.warps}{shared}s{self.stages}{split}"
