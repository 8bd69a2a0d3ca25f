"""Configurations of depthwise convolutions. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DepthwiseConfig:
    """One kernel: a thread has `rows` times `columns` pixels of one vector of channels.

    A threadblock has at most `slab` vectors of a pixel's channels, which a launch passes.
    """

    family: ClassVar[str] = "depthwise"

    threads: int
    rows: int
    columns: int
    slab: int

    @property
    def tile(self) -> str:
        """Rows and columns of a thread."""
        return f"{self.rows}x{self.columns}"

    def of_slab(self, vectors: int) -> int:
        """The vectors of a slab where a pixel has so many: all slabs but the last are equal."""
        return -(-vectors // -(-vectors // self.slab))

    def __str__(self) -> str:
        return f"{self.tile}t{self.threads}c{self.slab}"
