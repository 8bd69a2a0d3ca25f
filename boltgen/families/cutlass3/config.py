"""Configurations of sm_90a's kernels, and what they are compiled for. Only free parameters are
fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from boltgen.families.cutlass2.config import Shape
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.elementwise import ElementwiseGraph


class Schedule(Enum):
    """How two warpgroups that multiply share the work.

    In pingpong each has tiles of its own, and one's epilogue runs beside the other's product;
    cooperating they have half of every tile's rows each.
    """

    PINGPONG = "pingpong"
    COOPERATIVE = "cooperative"

    def __lt__(self, other: Schedule) -> bool:
        """By name: so that configurations have an order."""
        return self.value < other.value


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cutlass3Config:
    """One kernel of CUTLASS 3.x. `cluster_m` by `cluster_n` threadblocks share what they load.

    `swizzle` is how many tiles are visited together, chosen at launch.
    """

    family: ClassVar[str] = "cutlass3"

    threadblock: Shape
    schedule: Schedule
    cluster_m: int = 1
    cluster_n: int = 1
    swizzle: int = 1

    @property
    def kernel(self) -> Cutlass3Config:
        """What of it is compiled: the same for every swizzle."""
        return self if self.swizzle == 1 else replace(self, swizzle=1)

    @property
    def tile(self) -> str:
        """The threadblock's."""
        return str(self.threadblock)

    def __str__(self) -> str:
        swizzle = f"_z{self.swizzle}" if self.swizzle > 1 else ""
        return (
            f"{self.threadblock}_{self.schedule.value}_c{self.cluster_m}x{self.cluster_n}{swizzle}"
        )


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
    """What of a product is compiled."""

    epilogue: ElementwiseGraph
    in_dtype: DType
    out_dtype: DType
    b_layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutlass3ConvTraits(_AlignedToTma):
    """What of a convolution is compiled: filter, stride, padding and dilation are arguments."""

    epilogue: ElementwiseGraph
    in_dtype: DType
    out_dtype: DType
