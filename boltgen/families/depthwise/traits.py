"""The compiled part of a depthwise convolution's workload."""

from __future__ import annotations

from dataclasses import dataclass, field

from boltgen.families.depthwise_tile import Window, depthwise_of, vector_of, window_of
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph, Store
from boltgen.problems.workload import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseTraits:
    """Types, elements of D per vector access, filters of each channel, and the graph after.

    `window` is None of a filter whose columns are no part of the kernel. D begins with A's channels
    if it is `with_input`.
    """

    in_dtype: DType
    out_dtype: DType
    vector: int
    multiplier: int
    window: Window | None
    epilogue: ElementwiseGraph
    with_input: bool = field(default=False, metadata={"absent_at_default": True})


def rounded_sum(layer: Layer) -> Store | None:
    """Return the sum that the kernel rounds, from FP32 numbers in its workspace."""
    rounded = (each for each in layer.epilogue.reductions if each.dtype is not DType.F32)
    return next(rounded, None)


def compiled_traits(layer: Layer) -> DepthwiseTraits:
    """Return the compiled part of a layer."""
    problem = depthwise_of(layer)
    return DepthwiseTraits(
        in_dtype=problem.in_dtype,
        out_dtype=problem.out_dtype,
        vector=vector_of(problem),
        multiplier=problem.multiplier,
        window=window_of(problem),
        epilogue=layer.epilogue,
        with_input=problem.with_input,
    )
