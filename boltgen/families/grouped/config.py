"""Configurations of kernels for rows in groups, and what of a workload they are compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass2.traits import Cutlass2Traits, compiled_traits
from boltgen.ir.dtypes import IndexType
from boltgen.ir.problem import Gemm, GroupedGemm
from boltgen.ir.workload import Layer


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupedConfig:
    """The tiles by which a 2.x kernel computes the product of a group; K is not divided."""

    family: ClassVar[str] = "grouped"

    gemm: Cutlass2Config

    @property
    def tile(self) -> str:
        """The threadblock's."""
        return self.gemm.tile

    def __str__(self) -> str:
        return str(self.gemm)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTraits:
    """What of a workload is compiled: that of a group's product, and the type of `ends`."""

    gemm: Cutlass2Traits
    ends_dtype: IndexType


def grouped_of(layer: Layer) -> GroupedGemm:
    """The problem of a layer that the family does not reject."""
    assert isinstance(layer.problem, GroupedGemm)
    return layer.problem


def traits_of(layer: Layer) -> GroupedTraits:
    """What a kernel that computes the layer is compiled for."""
    problem = grouped_of(layer)
    return GroupedTraits(
        gemm=compiled_traits(problem.gemm, layer.epilogue), ends_dtype=problem.ends_dtype
    )


def even(problem: GroupedGemm) -> Gemm:
    """The batch of products that it is where all groups have as many rows, rounded up.

    Of more groups than rows it is those that may have one.
    """
    groups = min(problem.groups, problem.m)
    one = problem.of_rows(-(-problem.m // groups))
    return Gemm(
        batch=groups,
        m=one.m,
        n=one.n,
        k=one.k,
        b_layout=one.b_layout,
        in_dtype=one.in_dtype,
        acc_dtype=one.acc_dtype,
        out_dtype=one.out_dtype,
    )
