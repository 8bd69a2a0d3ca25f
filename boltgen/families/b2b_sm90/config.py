"""Configurations of sm_90a's back-to-back kernels (free parameters), and their traits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.chain.traits import LayerTraits, Residence, layers_of_sm90
from boltgen.families.chain.traits import compiled_traits as traits_of_chain
from boltgen.families.wgmma import WARPGROUP_M
from boltgen.ir.dtypes import DType, alignment_elements
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class B2bSm90Config:
    """One kernel: `threadblock_m` rows of every layer, and `columns` of each layer.

    With intermediates in registers, every multiplying warpgroup holds all columns of 64 rows; in
    shared memory, two warpgroups hold half of the columns each.
    """

    family: ClassVar[str] = "b2b_sm90"

    threadblock_m: int
    columns: tuple[int, ...]
    residence: Residence

    @property
    def along_m(self) -> int:
        """The number of multiplying warpgroups along M."""
        return self.threadblock_m // WARPGROUP_M

    @property
    def along_n(self) -> int:
        """The number of multiplying warpgroups along N."""
        return 1 if self.residence is Residence.REGISTERS else 2

    @property
    def warpgroups(self) -> int:
        """The number of multiplying warpgroups."""
        return self.along_m * self.along_n

    @property
    def tile(self) -> str:
        """Rows, and each layer's columns, as text."""
        return f"{self.threadblock_m}x{'+'.join(map(str, self.columns))}"

    def __str__(self) -> str:
        return f"{self.threadblock_m}_{'_'.join(map(str, self.columns))}_{self.residence.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class B2bSm90Traits:
    """The compiled part of a workload; filter, stride, padding and dilation are launch arguments.

    `is_conv` tells whether the first layer is a convolution. TMA loads only operands that are
    aligned to 16 bytes.
    """

    layers: tuple[LayerTraits, ...]
    in_dtype: DType
    out_dtype: DType
    is_conv: bool

    @property
    def alignment_a(self) -> int:
        """The number of elements that the rows of A are a multiple of."""
        return alignment_elements(self.in_dtype)


def compiled_traits(workload: Workload) -> B2bSm90Traits:
    """Return the traits for which a kernel of `workload` is compiled."""
    chain = traits_of_chain(workload)
    return B2bSm90Traits(
        layers=layers_of_sm90(chain),
        in_dtype=chain.in_dtype,
        out_dtype=chain.out_dtype,
        is_conv=isinstance(workload.first.problem, Conv2d),
    )
