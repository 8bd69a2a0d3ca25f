"""Configurations of sm_90a's kernels (the free parameters), and their compiled traits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.elementwise import ElementwiseGraph


class _Named(Enum):
    """An enum whose members are ordered by name, so that configurations have an order."""

    def __lt__(self, other: _Named) -> bool:
        return str(self.value) < str(other.value)


class Schedule(_Named):
    """The way in which two multiplying warpgroups share the work.

    In pingpong each warpgroup has its own tiles, and the epilogue of one overlaps the matmul of the
    other. Cooperative warpgroups have half of every tile's rows each.
    """

    PINGPONG = "pingpong"
    COOPERATIVE = "cooperative"


class Scheduler(_Named):
    """The work of a threadblock: whole tiles, or its share of all tiles' steps along K.

    Stream-K splits the tiles of a partial last wave between threadblocks, which add their sums.
    Source: Osama et al., Stream-K, PPoPP 2023.
    """

    PERSISTENT = "persistent"
    STREAM_K = "stream_k"


class Raster(_Named):
    """The direction in which tiles are visited."""

    ALONG_M = "along_m"
    ALONG_N = "along_n"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cutlass3Config:
    """One kernel of CUTLASS 3.x; `cluster_m` by `cluster_n` threadblocks share loaded operands.

    At launch are chosen: the `raster`; the `swizzle`, the number of tiles that are visited together
    across the raster; and `split_k`: with more than one slice, stream-K splits every tile into this
    many.
    """

    family: ClassVar[str] = "cutlass3"

    threadblock: Shape
    schedule: Schedule
    cluster_m: int = 1
    cluster_n: int = 1
    scheduler: Scheduler = Scheduler.PERSISTENT
    swizzle: int = 1
    raster: Raster = Raster.ALONG_M
    split_k: int = 1

    @property
    def kernel(self) -> Cutlass3Config:
        """The compiled part, which is the same for every swizzle, raster and number of slices."""
        return replace(self, swizzle=1, raster=Raster.ALONG_M, split_k=1)

    @property
    def tile(self) -> str:
        """The threadblock's tile, as text."""
        return str(self.threadblock)

    def __str__(self) -> str:
        parts = [f"{self.threadblock}_{self.schedule.value}_c{self.cluster_m}x{self.cluster_n}"]
        parts += [self.scheduler.value] * (self.scheduler is not Scheduler.PERSISTENT)
        parts += [f"z{self.swizzle}"] * (self.swizzle > 1)
        parts += [self.raster.value] * (self.raster is not Raster.ALONG_M)
        parts += [f"split{self.split_k}"] * (self.split_k > 1)
        return "_".join(parts)


class _AlignedToTma:
    """TMA loads only operands that are aligned to 16 bytes."""

    __slots__ = ()
    in_dtype: DType
    out_dtype: DType

    @property
    def alignment_a(self) -> int:
        """The number of elements that the rows of A are a multiple of."""
        return alignment_elements(self.in_dtype)

    @property
    def alignment_b(self) -> int:
        """The number of elements that the rows of B are a multiple of."""
        return alignment_elements(self.in_dtype)

    @property
    def alignment_d(self) -> int:
        """The number of elements that the rows of D are a multiple of."""
        return alignment_elements(self.out_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutlass3Traits(_AlignedToTma):
    """The compiled part of a matmul."""

    epilogue: ElementwiseGraph
    in_dtype: DType
    out_dtype: DType
    b_layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutlass3ConvTraits(_AlignedToTma):
    """The compiled part of a convolution: filter, stride, padding and dilation are arguments."""

    epilogue: ElementwiseGraph
    in_dtype: DType
    out_dtype: DType
