"""Small problems that reveal a kernel's mistakes at their edges, for any family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TypeVar

from boltgen.errors import InvalidProblemError
from boltgen.problems.convolution import Convolution
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.windows import filter_extents

_BATCH, _IMAGES = 3, 2
# The rows and pixels of a plane of a convolution's output, of which images have pixels alone: no
# powers of two, so that tiles begin within rows.
_PLANE = (3, 7)
# Among this many extents in sequence, one has any alignment that a kernel may have.
MOST_TRIED = 16
_Sized = TypeVar("_Sized")


def first_beyond(
    value: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """Return `value` with the first extent beyond `extent` that fits the kernel, or unchanged."""
    return _first(value, range(extent + 1, extent + 1 + MOST_TRIED), resized, fits)


def last_below(
    value: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """Return `value` with the last extent below `extent` that fits the kernel, or unchanged."""
    return _first(value, range(extent - 1, max(0, extent - 1 - MOST_TRIED), -1), resized, fits)


def _first(
    value: _Sized,
    extents: range,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    for extent in extents:
        try:
            sized = resized(value, extent)
        except InvalidProblemError:
            continue
        if fits(sized):
            return sized
    return value


def with_rows(problem: Problem, rows: int) -> Problem:
    """Return `problem` with `rows` rows of D, or a few more.

    A batch keeps several matmuls. A pointwise convolution keeps several images: its workload is a
    convolution only because the epilogue reduces each image, and one image of one pixel would
    become a matmul, which another kernel computes.
    """
    match problem:
        case Gemm():
            return replace(problem, m=rows, batch=_BATCH if problem.batch > 1 else 1)
        case Convolution():
            inner = _PLANE[1 - len(problem.stride) :]
            images = _IMAGES
            if rows == 1:
                images, inner = (_IMAGES if problem.is_pointwise else 1), (1,) * len(inner)
            windows = -(-rows // (images * prod(inner))), *inner
            sides = (input_extent(problem, axis, made) for axis, made in enumerate(windows))
            return problem.with_images(images, tuple(sides))
        case _:
            raise AssertionError(f"{problem.short} has no rows")


def input_extent(problem: Convolution | Depthwise, axis: int, extent: int) -> int:
    """Return the activation's extent that gives `extent` of the output, or the least valid one.

    If the stride allows it, there are pixels beyond the last window, which no output reads.
    """
    size, stride = filter_extents(problem)[axis], problem.stride[axis]
    window = problem.dilation[axis] * (size - 1) + 1
    padding = problem.padding[axis] + problem.padding[axis + len(problem.stride)]
    return max(1, (extent - 1) * stride + window - padding + (stride - 1))


def with_depth(problem: Problem, depth: int) -> Problem:
    """Return `problem` with K = `depth`; a convolution gets this many channels."""
    return problem.resized(depth, problem.d_shape[-1])
