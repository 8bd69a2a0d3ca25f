"""Configurations of sm_90a's kernels, and what they are compiled for. Only free parameters are
fields.
"""

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
    """The way in which two warpgroups that multiply share the work.

    In pingpong each has tiles of its own, and one's epilogue runs beside the other's product;
    cooperating they have half of every tile's rows each.
    """

    PINGPONG = "pingpong"
    COOPERATIVE = "cooperative"


class Scheduler(_Named):
    """The work of a threadblock: whole tiles, or its share of all tiles' steps of K.

    By stream-K the tiles of a last wave that is not full are split between threadblocks, which add
    up their sums. Source: Osama et al., Stream-K, PPoPP 2023.
    """

    PERSISTENT = "persistent"
    STREAM_K = "stream_k"


class Raster(_Named):
    """The direction in which tiles follow each other."""

    ALONG_M = "along_m"
    ALONG_N = "along_n"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cutlass3Config:
    """One kernel of CUTLASS 3.x. `cluster_m` by `cluster_n` threadblocks share what they load.

    Chosen at launch are `swizzle`, the tiles that are visited together across the `raster`, and
    `split_k`: with more than one slice stream-K splits every tile into so many.
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
        """The compiled part: the same for every swizzle, raster and number of slices."""
        return replace(self, swizzle=1, raster=Raster.ALONG_M, split_k=1)

    @property
    def tile(self) -> str:
        """The threadblock's."""
        return str(self.threadblock)

    def __str__(self) -> str:
        parts = [f"{self.threadblock}_{self.schedule.value}_c{self.cluster_m}x{self.cluster_n}"]
        parts += [self.scheduler.value] * (self.scheduler is not Scheduler.PERSISTENT)
        parts += [f"z{self.swizzle}"] * (self.swizzle > 1)
        parts += [self.raster.value] * (self.raster is not Raster.ALONG_M)
        parts += [f"split{self.split_k}"] * (self.split_k > 1)
        return "_".join(parts)


class _AlignedToTma:
    """TMA takes no operand below 16 bytes of alignment."""

    __slots__ = ()
    in_dtype: DType
    out_dtype: DType

    @property
    def alignment_a(self) -> int:
        """Elements of A that its rows are a multiple of."""
        return alignment_elements(self.in_dtype)

    @property
    def alignment_b(self) -> int:
        """The same of B."""
        return alignment_elements(self.in_dtype)

    @property
    def alignment_d(self) -> int:
        """The same of D."""
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
