"""The compiled part of a depthwise convolution's workload."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph, Store
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Layer

# Filters whose columns are compiled: what a row of them meets of an image stays in registers.
_MOST_TAPS, _MOST_STRIDE = 7, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The columns of a filter: how many, and the pixels between outputs and between columns."""

    taps: int
    stride: int
    dilation: int

    def met(self, columns: int) -> int:
        """Return how many pixels of a row so many columns of the output meet."""
        pixels = {
            column * self.stride + tap * self.dilation
            for column in range(columns)
            for tap in range(self.taps)
        }
        return len(pixels)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseTraits:
    """Types, elements of D per vector access, filters of each channel, and the graph after.

    `window` is None of a filter whose columns are no part of the kernel.
    """

    in_dtype: DType
    out_dtype: DType
    vector: int
    multiplier: int
    window: Window | None
    epilogue: ElementwiseGraph


def depthwise_of(layer: Layer) -> Depthwise:
    """The problem of a layer that the family does not reject."""
    problem = layer.problem
    assert isinstance(problem, Depthwise)
    return problem


def vector_of(problem: Depthwise) -> int:
    """Elements of D per vector access: 16 bytes of A, or less.

    The elements of a vector are of one vector of A, or of one of its elements.
    """
    vector = problem.alignment_b
    while vector % problem.multiplier and problem.multiplier % vector:
        vector //= 2
    return vector


def vector_of_a(problem: Depthwise) -> int:
    """Elements of A per vector access."""
    return max(vector_of(problem) // problem.multiplier, 1)


def rounded_sum(layer: Layer) -> Store | None:
    """Return the sum that the kernel rounds, from FP32 numbers in its workspace."""
    rounded = (each for each in layer.epilogue.reductions if each.dtype is not DType.F32)
    return next(rounded, None)


def window_of(problem: Depthwise) -> Window | None:
    """Return the columns of a filter that is compiled, else None."""
    stride, dilation = problem.stride[1], problem.dilation[1]
    if problem.s > _MOST_TAPS or stride > _MOST_STRIDE or dilation > 1:
        return None
    return Window(taps=problem.s, stride=stride, dilation=dilation)


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
    )
