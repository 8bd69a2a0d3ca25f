"""Depthwise convolutions of images: each channel has filters of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.gemm.problem import Gemm


@dataclass(frozen=True, slots=True, kw_only=True)
class Depthwise:
    """Forward convolution (cross-correlation) of as many groups as channels, summed in FP32.

    Activation: (N, H, W, C). Weight: (R, S, K, 1), K = C * multiplier. Output: (N, P, Q, K), whose
    channel k is of the activation's channel k / multiplier. Padding is (top, left, bottom, right),
    in pixels. Its `gemm` has the rows and columns of the output, and the filter's pixels as K.

    Raises:
        InvalidProblemError: an extent is out of range, no kernel multiplies its types, or the
            filter does not fit into the padded activation.
    """

    kind: ClassVar[str] = "depthwise"
    is_channelwise: ClassVar[bool] = True

    n: int
    h: int
    w: int
    c: int
    r: int
    s: int
    multiplier: int = 1
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    in_dtype: DType = DType.F16
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "r", "s", "multiplier", "k"))
        check_dtypes(self)
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise InvalidProblemError(
                f"Depthwise: stride={self.stride} and dilation={self.dilation} must be at least "
                f"1, padding={self.padding} at least 0"
            )
        if self.p < 1 or self.q < 1:
            raise InvalidProblemError(
                f"Depthwise: a {self.r}x{self.s} filter with dilation {self.dilation} does not "
                f"fit into a {self.h}x{self.w} activation with padding {self.padding}"
            )
        _ = self.gemm  # whose extents are checked when it is made

    @property
    def acc_dtype(self) -> DType:
        """FP32."""
        return DType.F32

    @property
    def k(self) -> int:
        """Channels of the output."""
        return self.c * self.multiplier

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
    def short(self) -> str:
        """`depthwise 1x56x56x144, 3x3, stride 2x2`."""
        stride = "" if self.stride == (1, 1) else f", stride {self.stride[0]}x{self.stride[1]}"
        filters = "" if self.multiplier == 1 else f" to {self.k}"
        image = f"{self.n}x{self.h}x{self.w}x{self.c}"
        return f"depthwise {image}{filters}, {self.r}x{self.s}{stride}"

    @property
    def gemm(self) -> Gemm:
        """M = N*P*Q, N = K, K = R*S: extents alone, since each column has an A of its own."""
        return Gemm(
            m=self.n * self.p * self.q,
            n=self.k,
            k=self.r * self.s,
            in_dtype=self.in_dtype,
            out_dtype=self.out_dtype,
        )

    @property
    def batch(self) -> int:
        """One."""
        return 1

    @property
    def canonical(self) -> Depthwise:
        """Itself."""
        return self

    @property
    def is_product(self) -> bool:
        """True: each pixel's neighbourhood is multiplied."""
        return True

    @property
    def is_exact(self) -> bool:
        """No: sums are rounded."""
        return False

    @property
    def storable(self) -> frozenset[DType]:
        """The type of its operands, and FP32."""
        return frozenset({self.in_dtype, DType.F32})

    @property
    def matrix(self) -> tuple[int, int]:
        """(N*P*Q, K)."""
        return self.n * self.p * self.q, self.k

    @property
    def is_matrix(self) -> bool:
        """It is not: which pixels a filter meets depends on each dimension."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(N, H, W, C)."""
        return self.n, self.h, self.w, self.c

    @property
    def b_shape(self) -> tuple[int, ...]:
        """(R, S, K, 1): the layout HWOI."""
        return self.r, self.s, self.k, 1

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
        return alignment_elements(self.in_dtype, self.k)

    @property
    def alignment_d(self) -> int:
        """Elements of the output, and of every tensor of its shape, per vector access."""
        return alignment_elements(self.out_dtype, self.k)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.n * self.p * self.q * self.k * self.r * self.s

    @property
    def a_bytes(self) -> int:
        """Bytes of the pixels that the filter touches; strides may leave some out."""
        rows, columns = min(self.h, self.p * self.r), min(self.w, self.q * self.s)
        return self.n * rows * columns * self.c * self.in_dtype.size_bytes

    @property
    def b_bytes(self) -> int:
        """Bytes of the filters."""
        return self.k * self.r * self.s * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_depthwise_args`."""
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
        """The sizes of `profiler_conv2d`: those of a launch, and a group for each channel."""
        return self.sizes | {"groups": self.c}

    @property
    def slice_rows(self) -> int:
        """The pixels of an image."""
        return self.p * self.q

    def in_slices(self, rows: int) -> Depthwise:
        """Itself: its images are its slices."""
        del rows
        return self

    def resized(self, channels: int, filters: int) -> Depthwise:
        """The convolution of so many channels, each with as many filters as before."""
        if filters != channels * self.multiplier:
            raise InvalidProblemError(
                f"Depthwise: {channels} channels of {self.multiplier} filters each make "
                f"{channels * self.multiplier}, not {filters}"
            )
        return replace(self, c=channels)

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of the weight's dimensions."""
        del channels
        return 0, 0, filters, 0

    def product(self, a: Array, b: Array) -> Array:
        """The convolution in FP64."""
        top, left, bottom, right = self.padding
        padded = np.pad(a, ((0, 0), (top, bottom), (left, right), (0, 0)))
        padded = np.repeat(padded, self.multiplier, axis=-1)
        result = np.zeros(self.d_shape)
        for r in range(self.r):
            for s in range(self.s):
                y, x = r * self.dilation[0], s * self.dilation[1]
                rows = slice(y, y + (self.p - 1) * self.stride[0] + 1, self.stride[0])
                columns = slice(x, x + (self.q - 1) * self.stride[1] + 1, self.stride[1])
                result += padded[:, rows, columns, :] * b[r, s, :, 0]
        return result
