"""The geometry that convolutions of images share: windows of pixels, which a filter meets.

Arrow: like `problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.functions import Array


class Windowed(Protocol):
    """A convolution of images: its extents, and its stride, padding and dilation, in pixels."""

    @property
    def n(self) -> int: ...  # noqa: D102
    @property
    def h(self) -> int: ...  # noqa: D102
    @property
    def w(self) -> int: ...  # noqa: D102
    @property
    def c(self) -> int: ...  # noqa: D102
    @property
    def r(self) -> int: ...  # noqa: D102
    @property
    def s(self) -> int: ...  # noqa: D102
    @property
    def p(self) -> int: ...  # noqa: D102
    @property
    def q(self) -> int: ...  # noqa: D102
    @property
    def stride(self) -> tuple[int, int]: ...  # noqa: D102
    @property
    def padding(self) -> tuple[int, int, int, int]: ...  # noqa: D102
    @property
    def dilation(self) -> tuple[int, int]: ...  # noqa: D102


def windows_along(problem: Windowed, axis: int) -> int:
    """Return the rows (`axis` 0) or columns (1) of the output."""
    extent, taps = ((problem.h, problem.r), (problem.w, problem.s))[axis]
    reach = problem.dilation[axis] * (taps - 1) + 1
    padded = extent + problem.padding[axis] + problem.padding[axis + 2]
    return (padded - reach) // problem.stride[axis] + 1


def check_windows(problem: Windowed) -> None:
    """Check stride, padding and dilation.

    Raises:
        InvalidProblemError: one is out of range, or the filter does not fit into the padded
            activation.
    """
    name = type(problem).__name__
    stride, padding, dilation = problem.stride, problem.padding, problem.dilation
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0:
        raise InvalidProblemError(
            f"{name}: stride={stride} and dilation={dilation} must be at least 1, "
            f"padding={padding} at least 0"
        )
    if problem.p < 1 or problem.q < 1:
        raise InvalidProblemError(
            f"{name}: a {problem.r}x{problem.s} filter with dilation {dilation} does not fit "
            f"into a {problem.h}x{problem.w} activation with padding {padding}"
        )


def touched_elements(problem: Windowed) -> int:
    """Return the elements of the pixels that the filter touches; strides may leave some out."""
    rows = min(problem.h, problem.p * problem.r)
    columns = min(problem.w, problem.q * problem.s)
    return problem.n * rows * columns * problem.c


def window_sizes(problem: Windowed) -> dict[str, int]:
    """Return the sizes of a launch that all convolutions of images have."""
    return {
        **{name: getattr(problem, name) for name in "nhwckrspq"},
        "pad_h": problem.padding[0],
        "pad_w": problem.padding[1],
        "stride_h": problem.stride[0],
        "stride_w": problem.stride[1],
        "dilation_h": problem.dilation[0],
        "dilation_w": problem.dilation[1],
    }


def padded_images(problem: Windowed, images: Array) -> Array:
    """Return images (N, H, W, C) with the zeros around them."""
    top, left, bottom, right = problem.padding
    return np.pad(images, ((0, 0), (top, bottom), (left, right), (0, 0)))


def taps(problem: Windowed, padded: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield each place in the filter, and the pixels (N, P, Q, C) of `padded` that it meets."""
    for r, s in np.ndindex(problem.r, problem.s):
        y, x = r * problem.dilation[0], s * problem.dilation[1]
        rows = slice(y, y + (problem.p - 1) * problem.stride[0] + 1, problem.stride[0])
        columns = slice(x, x + (problem.q - 1) * problem.stride[1] + 1, problem.stride[1])
        yield r, s, padded[:, rows, columns, :]
