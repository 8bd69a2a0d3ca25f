"""A thread's tile of a depthwise convolution, for any family: its vectors, registers and work.

Source: templates/include/boltgen/depthwise_tile.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Layer

# Filters whose columns are compiled: what a row of them meets of an image stays in registers.
_MOST_TAPS, _MOST_STRIDE = 7, 2
_REGISTER_BYTES = 4


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


def depthwise_of(layer: Layer) -> Depthwise:
    """The problem of a layer that is a depthwise convolution."""
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


def window_of(problem: Depthwise) -> Window | None:
    """Return the columns of a filter that is compiled, else None."""
    stride, dilation = problem.stride[1], problem.dilation[1]
    if problem.s > _MOST_TAPS or stride > _MOST_STRIDE or dilation > 1:
        return None
    return Window(taps=problem.s, stride=stride, dilation=dilation)


def window_text(window: Window | None) -> str:
    """Return the C++ type of a filter's columns."""
    if window is None:
        return "boltgen::AnyWindow"
    return (
        f"boltgen::Window</*Taps=*/{window.taps}, /*Stride=*/{window.stride}, "
        f"/*Dilation=*/{window.dilation}>"
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` times `columns` pixels of one vector of channels, of a thread."""

    problem: Depthwise
    rows: int
    columns: int

    @property
    def sums(self) -> int:
        """The sums of a thread."""
        return self.rows * self.columns * vector_of(self.problem)

    @property
    def row_registers(self) -> int:
        """The registers for the pixels of a row, and for a row of the filter in FP32."""
        size = self.problem.in_dtype.size_bytes
        of_pixel = max(vector_of_a(self.problem) * size // _REGISTER_BYTES, 1)
        return self._pixels_at_once * of_pixel + self._taps_at_once * vector_of(self.problem)

    @property
    def result_registers(self) -> int:
        """The registers for the results of a thread, rounded to the type of A."""
        return math.ceil(self.sums * self.problem.in_dtype.size_bytes / _REGISTER_BYTES)

    @property
    def steps(self) -> int:
        """The times that a thread reads pixels: for each row of the filter, or each pixel of it."""
        return self.problem.r * self.problem.s // self._taps_at_once

    @property
    def loads(self) -> int:
        """The loads of pixels and of the filter."""
        return self.steps * (self.rows * self._pixels_at_once + self._taps_at_once)

    @property
    def arithmetic(self) -> int:
        """The arithmetic instructions: each number that is loaded is widened."""
        problem = self.problem
        pixels = self.rows * self._pixels_at_once * vector_of_a(problem)
        widened = self.steps * (pixels + self._taps_at_once * vector_of(problem))
        return problem.r * problem.s * self.sums + widened

    @property
    def _taps_at_once(self) -> int:
        """The pixels of a filter that share the pixels that a thread has in registers."""
        window = window_of(self.problem)
        return 1 if window is None else window.taps

    @property
    def _pixels_at_once(self) -> int:
        """The pixels of a row of A that a thread has in registers."""
        window = window_of(self.problem)
        return self.columns if window is None else window.met(self.columns)
