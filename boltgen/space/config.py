"""Kernel configurations, composed by concern. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Extents along M, N and K, in elements."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cutlass2Config:
    """One kernel of the CUTLASS 2.x API: sm_75 to sm_89, and sm_90 as the fallback.

    `swizzle` is how many threadblock tiles along N are visited together, `split_k` the number of
    slices of K. Both are chosen at launch: they are part of the decision for a problem, not of the
    compiled kernel.
    """

    threadblock: Shape
    warp: Shape
    instruction: Shape
    stages: int
    swizzle: int = 1
    split_k: int = 1

    @property
    def kernel(self) -> Cutlass2Config:
        """What of it is compiled: the same for every swizzle and number of slices."""
        return self if self.swizzle == self.split_k == 1 else replace(self, swizzle=1, split_k=1)

    @property
    def warps(self) -> int:
        """Warps per threadblock."""
        tile, warp = self.threadblock, self.warp
        return (tile.m // warp.m) * (tile.n // warp.n) * (tile.k // warp.k)

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return 32 * self.warps

    def __str__(self) -> str:
        swizzle = f"_z{self.swizzle}" if self.swizzle > 1 else ""
        split = f"_split{self.split_k}" if self.split_k > 1 else ""
        return f"{self.threadblock}_{self.warp.m}x{self.warp.n}_s{self.stages}{swizzle}{split}"


class Residence(Enum):
    """Where a back-to-back kernel keeps what lies between two layers."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared_memory"

    def __lt__(self, other: Residence) -> bool:
        """By name: so that configurations have an order."""
        return self.value < other.value


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LayerTile:
    """The tiles of one layer of a back-to-back kernel.

    `n` and `k` are the threadblock's columns and its step along K; `stages` those of the pipeline
    that brings the operands from global memory.
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
    """One back-to-back kernel: `threadblock_m` rows of every layer, all of each layer's columns."""

    threadblock_m: int
    layers: tuple[LayerTile, ...]
    instruction: Shape
    residence: Residence

    def of_layer(self, layer: int) -> Cutlass2Config:
        """The tiles of one layer, as those of a kernel of its own."""
        tile = self.layers[layer]
        return Cutlass2Config(
            threadblock=Shape(self.threadblock_m, tile.n, tile.k),
            warp=Shape(tile.warp_m, tile.warp_n, tile.k),
            instruction=self.instruction,
            stages=tile.stages,
        )

    @property
    def warps(self) -> int:
        """Warps per threadblock; a legal configuration has as many in every layer."""
        return self.of_layer(0).warps

    @property
    def threads(self) -> int:
        """Threads per threadblock."""
        return 32 * self.warps

    def __str__(self) -> str:
        layers = "_".join(map(str, self.layers))
        return f"{self.threadblock_m}_{layers}_{self.residence.value}"


AnyConfig: TypeAlias = Cutlass2Config | B2bConfig
