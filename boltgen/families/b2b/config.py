"""Configurations of back-to-back kernels; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.chain.traits import Residence
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.space import Shape


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayerTile:
    """The tiles of one layer of a back-to-back kernel.

    `n` is the threadblock's columns, `k` its step along K. `stages` counts the stages of the
    pipeline that loads operands from global memory.
    """

    n: int
    k: int
    warp_m: int
    warp_n: int
    stages: int

    def __str__(self) -> str:
        return f"{self.n}x{self.k}w{self.warp_m}x{self.warp_n}s{self.stages}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class B2bConfig:
    """One back-to-back kernel: `threadblock_m` rows, and all columns, of every layer."""

    family: ClassVar[str] = "b2b"

    threadblock_m: int
    layers: tuple[LayerTile, ...]
    instruction: Shape
    residence: Residence

    def of_layer(self, layer: int) -> Tiles:
        """Return the tiles of one layer in the form of a single-layer kernel."""
        tile = self.layers[layer]
        return Tiles(
            threadblock=Shape(self.threadblock_m, tile.n, tile.k),
            warp=Shape(tile.warp_m, tile.warp_n, tile.k),
            instruction=self.instruction,
            stages=tile.stages,
        )

    @property
    def tile(self) -> str:
        """Rows, and each layer's columns, as text."""
        return f"{self.threadblock_m}x{'+'.join(str(layer.n) for layer in self.layers)}"

    @property
    def warps(self) -> int:
        """Warps per threadblock; every layer of a legal configuration has the same number."""
        return self.of_layer(0).warps

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return 32 * self.warps

    def __str__(self) -> str:
        layers = "_".join(map(str, self.layers))
        return f"{self.threadblock_m}_{layers}_{self.residence.value}"
