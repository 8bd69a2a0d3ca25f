"""Tiles of a 2.x mainloop with its launch arguments; the fields are the free parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from boltgen.families.space import Shape

T = TypeVar("T", bound="Tiles")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Tiles:
    """The tiles by which a kernel of the CUTLASS 2.x API divides a matmul or a convolution.

    `swizzle` is the number of threadblock tiles along N that are visited together, `split_k` the
    number of slices of K. Both are chosen at launch: they belong to the decision for a problem, not
    to the compiled kernel.
    """

    # Keys of kernels contain the first name of this class.
    key_name: ClassVar[str] = "Cutlass2Config"

    threadblock: Shape
    warp: Shape
    instruction: Shape
    stages: int
    swizzle: int = 1
    split_k: int = 1

    @property
    def kernel(self: T) -> T:
        """The compiled part, which is the same for every swizzle and number of slices."""
        return self if self.swizzle == self.split_k == 1 else replace(self, swizzle=1, split_k=1)

    @property
    def tile(self) -> str:
        """The threadblock's tile, as text."""
        return str(self.threadblock)

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


def column(configs: Sequence[Tiles]) -> Tiles:
    """Return one configuration whose fields are columns, with one element per configuration.

    The elements are floats, because products of a large problem's extents exceed 64 bits.
    """
    numbers = np.array(
        [
            (
                *(each.threadblock.m, each.threadblock.n, each.threadblock.k),
                *(each.warp.m, each.warp.n, each.warp.k),
                *(each.instruction.m, each.instruction.n, each.instruction.k),
                *(each.stages, each.swizzle, each.split_k),
            )
            for each in configs
        ],
        dtype=np.float64,
    )
    of: Any = numbers.T  # the formulas accept numbers and columns: `families.columns`
    return Tiles(
        threadblock=Shape(*of[:3]),
        warp=Shape(*of[3:6]),
        instruction=Shape(*of[6:9]),
        stages=of[9],
        swizzle=of[10],
        split_k=of[11],
    )
