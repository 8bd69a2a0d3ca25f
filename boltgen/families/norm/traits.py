"""The compiled part of a norm's workload, and the rows as its kernel sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Layer

RowNorm: TypeAlias = "Norm | GroupNorm"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormTraits:
    """The function, types, elements per vector access, graphs, and the type of gather indices.

    If `groups_of_vector` is not 0, rows are groups of images in NHWC, and a vector spans this many
    groups.
    """

    function: NormFunction
    epsilon: float
    in_dtype: DType
    out_dtype: DType
    vector: int
    prologue: ElementwiseGraph
    epilogue: ElementwiseGraph
    rows_dtype: IndexType | None = field(default=None, metadata={"absent_at_default": True})
    groups_of_vector: int = field(default=0, metadata={"absent_at_default": True})


def norm_of(layer: Layer) -> RowNorm:
    """Return the problem of a layer that the family accepts."""
    problem = layer.problem
    assert isinstance(problem, (Norm, GroupNorm))
    return problem


def vector_of(problem: RowNorm) -> int:
    """Return the elements per vector access: 16 bytes of the narrower of A and D, if columns allow.

    The wider one takes two accesses. Bytes are stored 8 at once: as many as A has in 16 bytes.
    """
    if problem.out_dtype.size_bytes == 1:
        return problem.alignment_a
    return max(problem.alignment_a, problem.alignment_d)


def groups_of_vector(problem: RowNorm) -> int:
    """Return the number of channel groups that a vector spans; 0 if rows are contiguous."""
    if isinstance(problem, Norm):
        return 0
    return max(vector_of(problem) // problem.channels_per_group, 1)


def rows_of(problem: RowNorm) -> tuple[int, int]:
    """Return the rows of threads, and elements per row; groups in one vector form one row."""
    norm, groups = problem.row_norm, max(groups_of_vector(problem), 1)
    return norm.rows // groups, norm.columns * groups


def compiled_traits(layer: Layer) -> NormTraits:
    """Return the compiled part of a layer."""
    problem = norm_of(layer)
    norm = problem.row_norm
    return NormTraits(
        function=norm.function,
        epsilon=norm.epsilon,
        in_dtype=norm.in_dtype,
        out_dtype=norm.out_dtype,
        vector=vector_of(problem),
        prologue=layer.prologue,
        epilogue=layer.epilogue,
        rows_dtype=norm.rows_dtype,
        groups_of_vector=groups_of_vector(problem),
    )
