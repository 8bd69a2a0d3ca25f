"""The compiled part of a depthwise separable convolution's workload."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.families.depthwise_tile import Window, depthwise_of, vector_of, window_of
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparableTraits:
    """Types, vectors, the filter's columns, and the graphs after both convolutions.

    A thread computes `vector` channels `between` the convolutions at once. `window` is None for a
    filter whose columns are not compiled.
    """

    in_dtype: DType
    acc_dtype: DType
    out_dtype: DType
    vector: int
    multiplier: int
    window: Window | None
    between: ElementwiseGraph
    b_layout: Layout
    alignment_b: int
    alignment_d: int
    epilogue: ElementwiseGraph


def compiled_traits(workload: Workload) -> SeparableTraits:
    """Return the traits for which a kernel of `workload` is compiled."""
    first, last = depthwise_of(workload.first), workload.last.problem
    return SeparableTraits(
        in_dtype=first.in_dtype,
        acc_dtype=last.acc_dtype,
        out_dtype=last.out_dtype,
        vector=vector_of(first),
        multiplier=first.multiplier,
        window=window_of(first),
        between=workload.first.epilogue,
        b_layout=last.gemm.b_layout,
        alignment_b=last.alignment_b,
        alignment_d=last.alignment_d,
        epilogue=workload.last.epilogue,
    )
