"""Convolutions of images, and the matmuls that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive, storable
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.windows import (
    check_windows,
    padded_images,
    taps,
    touched_elements,
    window_sizes,
    windows_along,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Forward convolution (cross-correlation).

    Activation: (N, H, W, C). Weight: (K, R, S, C / groups). Output: (N, P, Q, K). Padding is (top,
    left, bottom, right), in pixels. Of several groups, each multiplies its C / groups neighbouring
    channels by its K / groups neighbouring filters.

    Raises:
        InvalidProblemError: an extent, its own or of its implicit matrix product, is out of range,
            its types are none that a `Gemm` takes, the filter does not fit into the padded
            activation, or channels or filters are no whole groups.
    """

    kind: ClassVar[str] = "conv2d"

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16
    groups: int = field(default=1, metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "k", "r", "s", "groups"))
        if self.c % self.groups or self.k % self.groups:
            raise InvalidProblemError(
                f"Conv2d: c={self.c} channels and k={self.k} filters are no {self.groups} groups"
            )
        check_dtypes(self)
        check_windows(self)
        _ = self.gemm  # which checks the extents and types

    @property
    def p(self) -> int:
        """Rows of the output."""
        return windows_along(self, 0)

    @property
    def q(self) -> int:
        """Columns of the output."""
        return windows_along(self, 1)

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a 1x1, stride-1, unpadded convolution: a plain matmul."""
        return (self.r, self.s) == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0, 0, 0)

    @property
    def short(self) -> str:
        """`conv 1x56x56x64 to 64, 3x3, stride 2x2`."""
        stride = "" if self.stride == (1, 1) else f", stride {self.stride[0]}x{self.stride[1]}"
        groups = "" if self.groups == 1 else f", {self.groups} groups"
        image = f"{self.n}x{self.h}x{self.w}x{self.c}"
        return f"conv {image} to {self.k}, {self.r}x{self.s}{stride}{groups}"

    @property
    def group(self) -> Conv2d:
        """The convolution of one group."""
        c, k = self.c // self.groups, self.k // self.groups
        return self if self.groups == 1 else replace(self, c=c, k=k, groups=1)

    def in_groups(self, groups: int) -> Conv2d:
        """Return so many of these convolutions as one in groups."""
        return replace(self, c=groups * self.c, k=groups * self.k, groups=groups)

    @property
    def gemm(self) -> Gemm:
        """The matrix product that computes it: M = N*P*Q, N = K, K = R*S*C / groups.

        Of several groups, each multiplies an A of its own by its part of N.
        """
        extents = self.n * self.p * self.q, self.k, self.r * self.s * (self.c // self.groups)
        return _implicit_gemm(extents, self.in_dtype, self.acc_dtype, self.out_dtype)

    @property
    def batch(self) -> int:
        """One: the images are rows of one matmul."""
        return 1

    @property
    def canonical(self) -> Problem:
        """The plain matmul if it is pointwise: in NHWC its activation is a matrix."""
        return self.gemm if self.is_pointwise and self.groups == 1 else self

    @property
    def is_product(self) -> bool:
        """True."""
        return True

    @property
    def is_exact(self) -> bool:
        """False: sums are rounded."""
        return False

    @property
    def storable(self) -> frozenset[DType]:
        """The type of the operands, and FP32; any type of a product of integers."""
        return storable(self.in_dtype)

    @property
    def matrix(self) -> tuple[int, int]:
        """(N*P*Q, K)."""
        return self.n * self.p * self.q, self.k

    @property
    def is_matrix(self) -> bool:
        """False: the pixels under a filter depend on each dimension."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(N, H, W, C)."""
        return self.n, self.h, self.w, self.c

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(K, R, S, C / groups)."""
        return self.k, self.r, self.s, self.c // self.groups

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(N, P, Q, K)."""
        return self.n, self.p, self.q, self.k

    @property
    def alignment_a(self) -> int:
        """Elements of the activation per vector access."""
        return alignment_elements(self.in_dtype, self.c // self.groups)

    @property
    def alignment_b(self) -> int:
        """Elements of the weight per vector access."""
        return alignment_elements(self.in_dtype, self.c // self.groups)

    @property
    def alignment_d(self) -> int:
        """Elements of the output, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.k // self.groups)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.n * self.p * self.q * self.k * self.r * self.s * (self.c // self.groups)

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that filters read; large strides skip pixels."""
        return touched_elements(self) * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the filters."""
        return self.k * self.r * self.s * (self.c // self.groups) * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_conv2d_args`, without its groups."""
        return window_sizes(self)

    @property
    def extents(self) -> dict[str, int]:
        """The sizes of a launch and the number of groups, for `profiler_conv2d`."""
        return self.sizes | {"groups": self.groups}

    @property
    def slice_rows(self) -> int:
        """The pixels of an image."""
        return self.p * self.q

    def in_slices(self, rows: int) -> Conv2d:
        """Return the convolution itself: its images are its slices."""
        del rows
        return self

    def resized(self, channels: int, filters: int) -> Conv2d:
        """Return the convolution with `channels` input channels and `filters` filters."""
        return replace(self, c=channels, k=filters)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of the weight's dimensions."""
        return filters, 0, 0, channels

    def product(self, a: Array, b: Array) -> Array:
        """Return the convolution in FP64."""
        if self.groups > 1:
            of_groups = np.split(a, self.groups, -1), np.split(b, self.groups)
            return np.concatenate(list(map(self.group.product, *of_groups)), -1)
        result = np.zeros(self.d_shape)
        for r, s, pixels in taps(self, padded_images(self, a)):
            result += pixels @ b[:, r, s, :].T
        return result
