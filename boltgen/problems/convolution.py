"""Forward convolutions that tensor cores multiply, of images and of volumes.

Arrow: like `problem`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.windows import (
    Windowed,
    check_windows,
    filter_extents,
    image_extents,
    padded_images,
    profiled_extents,
    taps,
)

_Self = TypeVar("_Self", bound="Convolution")


@lru_cache(maxsize=4096)
def _implicit_gemm(
    extents: tuple[int, int, int], in_dtype: DType, acc_dtype: DType, out_dtype: DType
) -> Gemm:
    """Return the matmul of a convolution; cached, because models ask thousands of times."""
    m, n, k = extents
    return Gemm(
        m=m,
        n=n,
        k=k,
        b_layout=Layout.COLUMN,
        in_dtype=in_dtype,
        acc_dtype=acc_dtype,
        out_dtype=out_dtype,
    )


class Convolution(Windowed):
    """Forward convolution (cross-correlation): the part that does not depend on the rank.

    Activation: (N, ..., C), with the spatial axes between. Weight: (K, ..., C / groups). Output:
    (N, ..., K). Of several groups, each multiplies its C / groups neighbouring channels by its
    K / groups neighbouring filters.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        named = [*"nck", *image_extents(self), *"trs"[-len(self.stride) :], "groups"]
        check_positive(self, tuple(named))
        if self.c % self.groups or self.k % self.groups:
            raise InvalidProblemError(
                f"{type(self).__name__}: c={self.c} channels and k={self.k} filters are no "
                f"{self.groups} groups"
            )
        check_dtypes(self)
        check_windows(self)
        _ = self.gemm  # which checks the extents and types

    @property
    def groups(self) -> int:
        """One, unless the class has a field of this name."""
        return 1

    @property
    def filter_positions(self) -> int:
        """The number of positions of a filter, which each multiply C / groups channels."""
        return prod(filter_extents(self))

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a 1x1, stride-1, unpadded convolution: a plain matmul."""
        return self.filter_positions == 1 and max(self.stride) == 1 and max(self.padding) == 0

    @property
    def short(self) -> str:
        """`conv 1x56x56x64 to 64, 3x3, stride 2x2`."""

        def shown(numbers: tuple[int, ...]) -> str:
            return "x".join(map(str, numbers))

        stride = "" if max(self.stride) == 1 else f", stride {shown(self.stride)}"
        groups = "" if self.groups == 1 else f", {self.groups} groups"
        return f"conv {shown(self.a_shape)} to {self.k}, {shown(filter_extents(self))}" + (
            stride + groups
        )

    @property
    def gemm(self) -> Gemm:
        """The matrix product that computes it: M = N*P*Q, N = K, K = R*S*C / groups.

        M has the output's depth as well, K the filter's. Of several groups, each multiplies an A of
        its own by its part of N.
        """
        extents = self.matrix[0], self.k, self.filter_positions * (self.c // self.groups)
        return _implicit_gemm(extents, self.in_dtype, self.acc_dtype, self.out_dtype)

    @property
    def canonical(self) -> Problem:
        """The plain matmul if it is pointwise: its activation is a matrix, channels last."""
        itself: Any = self
        made: Problem = self.gemm if self.is_pointwise and self.groups == 1 else itself
        return made

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(K, R, S, C / groups), or (K, T, R, S, C)."""
        return self.k, *filter_extents(self), self.c // self.groups

    @property
    def alignment_a(self) -> int:
        """Elements of the activation per vector access."""
        return alignment_elements(self.in_dtype, self.c // self.groups)

    @property
    def alignment_d(self) -> int:
        """Elements of the output, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.k // self.groups)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.matrix[0] * self.k * self.filter_positions * (self.c // self.groups)

    @property
    def extents(self) -> dict[str, int]:
        """The fields of `profiler_conv`."""
        return profiled_extents(self, self.groups)

    def resized(self: _Self, channels: int, filters: int) -> _Self:
        """Return the convolution with `channels` input channels and `filters` filters."""
        itself: Any = self
        made: _Self = replace(itself, c=channels, k=filters)
        return made

    def with_images(self: _Self, count: int, extents: tuple[int, ...]) -> _Self:
        """Return the convolution of `count` images of these extents."""
        itself: Any = self
        sides = dict(zip(image_extents(self), extents, strict=True))
        made: _Self = replace(itself, n=count, **sides)
        return made

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of the weight's dimensions."""
        return filters, *(0 for _ in self.stride), channels

    def product(self, a: Array, b: Array) -> Array:
        """Return the convolution of one group in FP64."""
        result = np.zeros(self.d_shape)
        by_place = b.reshape(self.k, self.filter_positions, -1)
        for place, pixels in enumerate(taps(self, padded_images(self, a))):
            result += pixels @ by_place[:, place].T
        return result
