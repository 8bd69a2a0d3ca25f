"""Convolutions of images, and the matmuls that compute them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, Layout, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem


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
    """Forward convolution (cross-correlation), one group.

    Activation: (N, H, W, C). Weight: (K, R, S, C). Output: (N, P, Q, K). Padding is (top, left,
    bottom, right), in pixels.

    Raises:
        InvalidProblemError: an extent of the convolution or of its implicit matmul is out of range,
            a `Gemm` does not take its types, or the filter does not fit into the padded activation.
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

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "k", "r", "s"))
        check_dtypes(self)
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise InvalidProblemError(
                f"Conv2d: stride={self.stride} and dilation={self.dilation} must be at least 1, "
                f"padding={self.padding} at least 0"
            )
        if self.p < 1 or self.q < 1:
            raise InvalidProblemError(
                f"Conv2d: a {self.r}x{self.s} filter with dilation {self.dilation} does not fit "
                f"into a {self.h}x{self.w} activation with padding {self.padding}"
            )
        _ = self.gemm  # which checks the extents and types

    @property
    def p(self) -> int:
        """Rows of the output."""
        reach = self.dilation[0] * (self.r - 1) + 1
        return (self.h + self.padding[0] + self.padding[2] - reach) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Columns of the output."""
        reach = self.dilation[1] * (self.s - 1) + 1
        return (self.w + self.padding[1] + self.padding[3] - reach) // self.stride[1] + 1

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a 1x1, stride-1, unpadded convolution: a plain matmul."""
        return (self.r, self.s) == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0, 0, 0)

    @property
    def short(self) -> str:
        """`conv 1x56x56x64 to 64, 3x3, stride 2x2`."""
        stride = "" if self.stride == (1, 1) else f", stride {self.stride[0]}x{self.stride[1]}"
        return f"conv {self.n}x{self.h}x{self.w}x{self.c} to {self.k}, {self.r}x{self.s}{stride}"

    @property
    def gemm(self) -> Gemm:
        """The implicit matmul: M = N*P*Q, N = K, K = R*S*C."""
        extents = self.n * self.p * self.q, self.k, self.r * self.s * self.c
        return _implicit_gemm(extents, self.in_dtype, self.acc_dtype, self.out_dtype)

    @property
    def batch(self) -> int:
        """One: the images are rows of one matmul."""
        return 1

    @property
    def canonical(self) -> Problem:
        """The matmul of a pointwise convolution, whose NHWC activation is a matrix; else itself."""
        return self.gemm if self.is_pointwise else self

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
        """The type of the operands, and FP32."""
        return frozenset({self.in_dtype, DType.F32})

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
        """(K, R, S, C)."""
        return self.k, self.r, self.s, self.c

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(N, P, Q, K)."""
        return self.n, self.p, self.q, self.k

    @property
    def alignment_a(self) -> int:
        """Elements of the activation per vector access."""
        return alignment_elements(self.in_dtype, self.c)

    @property
    def alignment_b(self) -> int:
        """Elements of the weight per vector access."""
        return alignment_elements(self.in_dtype, self.c)

    @property
    def alignment_d(self) -> int:
        """Elements of the output, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.k)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.n * self.p * self.q * self.k * self.r * self.s * self.c

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that filters read; large strides skip pixels."""
        rows, columns = min(self.h, self.p * self.r), min(self.w, self.q * self.s)
        return self.n * rows * columns * self.c * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the filters."""
        return self.k * self.r * self.s * self.c * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_conv2d_args`."""
        return {
            **{name: getattr(self, name) for name in "nhwckrspq"},
            "pad_h": self.padding[0],
            "pad_w": self.padding[1],
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "dilation_h": self.dilation[0],
            "dilation_w": self.dilation[1],
        }

    @property
    def extents(self) -> dict[str, int]:
        """The sizes of `profiler_conv2d`, which equal `sizes`."""
        return self.sizes

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
        top, left, bottom, right = self.padding
        padded = np.pad(a, ((0, 0), (top, bottom), (left, right), (0, 0)))
        result = np.zeros(self.d_shape)
        for r in range(self.r):
            for s in range(self.s):
                y, x = r * self.dilation[0], s * self.dilation[1]
                rows = slice(y, y + (self.p - 1) * self.stride[0] + 1, self.stride[0])
                columns = slice(x, x + (self.q - 1) * self.stride[1] + 1, self.stride[1])
                result += padded[:, rows, columns, :] @ b[:, r, s, :].T
        return result
