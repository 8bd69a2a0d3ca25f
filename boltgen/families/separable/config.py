"""Configurations of depthwise separable convolutions; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.mma_sync.config import Tiles
from boltgen.families.space import Shape


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeparableConfig:
    """One kernel: a threadblock has `threadblock.m` pixels and `threadblock.n` channels of D.

    It computes `threadblock.k` channels between the layers at a time; a thread has `columns`
    neighbouring pixels of one vector of them. A warp multiplies `warp_m` pixels and `warp_n`
    columns. `stages` counts the stages of the pipeline that loads B.
    """

    family: ClassVar[str] = "separable"

    threadblock: Shape
    warp_m: int
    warp_n: int
    instruction: Shape
    stages: int
    columns: int

    @property
    def tiles(self) -> Tiles:
        """The tiles of the 1x1 convolution in the form of a single-layer kernel."""
        return Tiles(
            threadblock=self.threadblock,
            warp=Shape(self.warp_m, self.warp_n, self.threadblock.k),
            instruction=self.instruction,
            stages=self.stages,
        )

    @property
    def tile(self) -> str:
        """The threadblock's tile, as text."""
        return str(self.threadblock)

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return self.tiles.threads

    def __str__(self) -> str:
        warp = f"{self.warp_m}x{self.warp_n}"
        return f"{self.threadblock}_w{warp}_s{self.stages}_c{self.columns}"
