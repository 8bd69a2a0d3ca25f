"""The geometry that convolutions share: windows of pixels or voxels, which a filter meets.

Spatial axes are (H, W) of images and (D, H, W) of volumes. Arrow: like `problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.functions import Array
from boltgen.problems.dense import Dense

# The names of a problem's extents along its spatial axes, of which images have the last two.
_IMAGE, _FILTER, _WINDOWS = ("depth", "h", "w"), ("t", "r", "s"), ("z", "p", "q")
_AXES = "dhw"


class Windowed(Dense):
    """A convolution: its extents, and its stride, padding and dilation along the spatial axes.

    `padding` has all befores first. Volumes have a `depth` too, their filters a depth `t`.
    """

    __slots__ = ()

    n: int
    h: int
    w: int
    c: int
    r: int
    s: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    if TYPE_CHECKING:  # a field or a property

        @property
        def k(self) -> int: ...  # noqa: D102

    @property
    def p(self) -> int:
        """Rows of the output."""
        return windows_along(self, len(self.stride) - 2)

    @property
    def q(self) -> int:
        """Columns of the output."""
        return windows_along(self, len(self.stride) - 1)

    @property
    def matrix(self) -> tuple[int, int]:
        """(N*P*Q, K)."""
        return self.n * self.slice_rows, self.k

    @property
    def is_matrix(self) -> bool:
        """False: the pixels under a filter depend on each dimension."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(N, H, W, C), or (N, D, H, W, C)."""
        return self.n, *image_extents(self).values(), self.c

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(N, P, Q, K), or (N, Z, P, Q, K)."""
        return self.n, *windows(self), self.k

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that filters read; large strides skip pixels."""
        return touched_elements(self) * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the launch's struct, without groups."""
        return window_sizes(self)

    @property
    def slice_rows(self) -> int:
        """The pixels of an image of the output."""
        return prod(windows(self))


def image_extents(problem: Windowed) -> dict[str, int]:
    """Return the activation's extents along the spatial axes, by their names."""
    return _named(problem, _IMAGE)


def filter_extents(problem: Windowed) -> tuple[int, ...]:
    """Return the filter's extents along the spatial axes."""
    return tuple(_named(problem, _FILTER).values())


def windows(problem: Windowed) -> tuple[int, ...]:
    """Return the output's extents along the spatial axes."""
    return tuple(windows_along(problem, axis) for axis in range(len(problem.stride)))


def _named(problem: Windowed, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(problem, name) for name in names[-len(problem.stride) :]}


def windows_along(problem: Windowed, axis: int) -> int:
    """Return the output's extent along a spatial axis."""
    extent = getattr(problem, _IMAGE[axis - len(problem.stride)])
    taps = getattr(problem, _FILTER[axis - len(problem.stride)])
    reach = problem.dilation[axis] * (taps - 1) + 1
    padded = extent + problem.padding[axis] + problem.padding[axis + len(problem.stride)]
    made: int = (padded - reach) // problem.stride[axis] + 1
    return made


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
    if min(windows(problem)) < 1:
        size = "x".join(map(str, filter_extents(problem)))
        image = "x".join(map(str, image_extents(problem).values()))
        raise InvalidProblemError(
            f"{name}: a {size} filter with dilation {dilation} does not fit into a {image} "
            f"activation with padding {padding}"
        )


def touched_elements(problem: Windowed) -> int:
    """Return the elements of the pixels that the filter touches; strides may leave some out."""
    sides = zip(
        image_extents(problem).values(), windows(problem), filter_extents(problem), strict=True
    )
    return problem.n * prod(min(extent, made * taps) for extent, made, taps in sides) * problem.c


def window_sizes(problem: Windowed) -> dict[str, int]:
    """Return the sizes of a launch that all convolutions have."""
    axes = _AXES[-len(problem.stride) :]
    sizes = {"n": problem.n, **image_extents(problem), "c": problem.c, "k": problem.k}
    sizes |= _named(problem, _FILTER) | _named(problem, _WINDOWS)
    for name, values in (
        ("pad", problem.padding),
        ("stride", problem.stride),
        ("dilation", problem.dilation),
    ):
        sizes |= {f"{name}_{axis}": value for axis, value in zip(axes, values, strict=False)}
    return sizes


def profiled_extents(problem: Windowed, groups: int) -> dict[str, int]:
    """Return the fields of `profiler_conv`: images have a depth of one."""
    flat = {"depth": 1, "t": 1, "z": 1, "pad_d": 0, "stride_d": 1, "dilation_d": 1}
    return flat | window_sizes(problem) | {"groups": groups, "with_input": 0}


def padded_images(problem: Windowed, images: Array) -> Array:
    """Return images or volumes, with channels last, with the zeros around them."""
    rank = len(problem.stride)
    around = zip(problem.padding[:rank], problem.padding[rank:], strict=True)
    return np.pad(images, ((0, 0), *around, (0, 0)))


def taps(problem: Windowed, padded: Array) -> Iterator[Array]:
    """Yield, for each place in the filter, the pixels of `padded` that it meets, as D has them."""
    for place in np.ndindex(*filter_extents(problem)):
        met = [
            slice(at * apart, at * apart + (made - 1) * step + 1, step)
            for at, apart, made, step in zip(
                place, problem.dilation, windows(problem), problem.stride, strict=True
            )
        ]
        whole = slice(None), *met
        yield padded[whole]
