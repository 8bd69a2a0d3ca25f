"""Configurations of grouped kernels, and the compiled part of their workloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traits import MainloopTraits, compiled_traits
from boltgen.ir.dtypes import IndexType
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.workload import Layer

# Bytes of a row's index, after the clamp to A's rows.
_ROW_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupedConfig:
    """The tiles by which a 2.x kernel computes the matmul of a group; K is not split."""

    family: ClassVar[str] = "grouped"

    gemm: Tiles

    @property
    def tile(self) -> str:
        """The threadblock's tile, as text."""
        return self.gemm.tile

    def __str__(self) -> str:
        return str(self.gemm)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTraits:
    """The compiled part of a workload: a group's traits, and the types of `ends` and `rows`.

    The type of `rows` is None unless A's rows are gathered.
    """

    gemm: MainloopTraits
    ends_dtype: IndexType
    rows_dtype: IndexType | None = field(default=None, metadata={"absent_at_default": True})


def grouped_of(layer: Layer) -> GroupedGemm:
    """Return the problem of a layer that the family accepts."""
    assert isinstance(layer.problem, GroupedGemm)
    return layer.problem


def traits_of(layer: Layer) -> GroupedTraits:
    """Return the traits for which a kernel of the layer is compiled."""
    problem = grouped_of(layer)
    return GroupedTraits(
        gemm=compiled_traits(problem.gemm, layer.epilogue),
        ends_dtype=problem.ends_dtype,
        rows_dtype=problem.rows_dtype,
    )


def rows_bytes(problem: GroupedGemm, config: GroupedConfig) -> int:
    """Return the shared memory for the indices of a tile's gathered rows, in bytes; else 0.

    Source: templates/include/boltgen/gathered_mainloop.h, RowsOfTile.
    """
    return 0 if problem.gathered is None else config.gemm.threadblock.m * _ROW_BYTES


def even(problem: GroupedGemm) -> Gemm:
    """Return the problem as a batch whose groups have equally many rows, rounded up.

    If there are more groups than rows, the batch has as many groups as rows.
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


def repeated_bytes(problem: GroupedGemm, kept_bytes: float) -> float:
    """Return the bytes of A that a gather reads from DRAM in excess of rows in order.

    The bytes of the integers are subtracted. If L2 keeps the whole tensor, each of its rows is read
    once, however often it is gathered.
    """
    taken = problem.gathered
    if taken is None:
        return 0.0
    row_bytes = problem.k * problem.in_dtype.size_bytes
    hit = min(1.0, kept_bytes / (taken.distinct * row_bytes))
    return hit * (taken.rows - taken.distinct) * row_bytes - taken.bytes
