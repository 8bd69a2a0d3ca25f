"""What of a workload a norm's kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, field

from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.norm import Norm, NormFunction
from boltgen.ir.workload import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class NormTraits:
    """The function, types, elements per vector access, the graphs before and after, and the type of
    what takes A's rows, where they are taken.
    """

    function: NormFunction
    epsilon: float
    in_dtype: DType
    out_dtype: DType
    vector: int
    prologue: ElementwiseGraph
    epilogue: ElementwiseGraph
    rows_dtype: IndexType | None = field(default=None, metadata={"absent_at_default": True})


def norm_of(layer: Layer) -> Norm:
    """The problem of a layer that the family does not reject."""
    problem = layer.problem
    assert isinstance(problem, Norm)
    return problem


def vector_of(problem: Norm) -> int:
    """Elements per vector access: 16 bytes of the narrower of A and D, where columns allow it.

    The wider one takes two accesses.
    """
    return max(problem.alignment_a, problem.alignment_d)


def compiled_traits(layer: Layer) -> NormTraits:
    """What is compiled of a layer."""
    problem = norm_of(layer)
    return NormTraits(
        function=problem.function,
        epsilon=problem.epsilon,
        in_dtype=problem.in_dtype,
        out_dtype=problem.out_dtype,
        vector=vector_of(problem),
        prologue=layer.prologue,
        epilogue=layer.epilogue,
        rows_dtype=problem.rows_dtype,
    )
