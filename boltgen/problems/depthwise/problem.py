"""Depthwise convolutions of images: each channel has filters of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType, alignment_elements
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_dtypes, check_positive
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.windows import (
    Windowed,
    check_windows,
    padded_images,
    profiled_extents,
    taps,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Depthwise(Windowed):
    """Forward convolution (cross-correlation) of as many groups as channels, summed in FP32.

    Activation: (N, H, W, C). Weight: (R, S, K, 1), K = C * multiplier. Output: (N, P, Q, K), whose
    channel k is of the activation's channel k / multiplier. Padding is (top, left, bottom, right),
    in pixels. Its `gemm` has the rows and columns of the output, and the filter's pixels as K.

    If it is `with_input`, the output begins with the activation's own channels: K = 2 C, and the
    weight has the C filters of the channels after them.

    Raises:
        InvalidProblemError: an extent is out of range, no kernel multiplies its types, the filter
            does not fit into the padded activation, or an activation in the output has another
            size or several filters for each channel.
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
    with_input: bool = field(default=False, metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "r", "s", "multiplier", "k"))
        check_dtypes(self)
        check_windows(self)
        if self.with_input and not self.has_place_for_input:
            raise InvalidProblemError(
                f"Depthwise: an output of {self.p}x{self.q} pixels and {self.multiplier} filters "
                f"for each channel has no place for the activation's {self.h}x{self.w} pixels"
            )
        _ = self.gemm  # whose extents are checked when it is made

    @property
    def has_place_for_input(self) -> bool:
        """Whether the output could begin with the activation: each has the other's size, and keeps
        it in all images.
        """
        is_dense = self.multiplier == 1 and max(self.stride) == 1
        return is_dense and (self.p, self.q) == (self.h, self.w)

    @property
    def filters(self) -> int:
        """All channels' filters."""
        return self.c * self.multiplier

    @property
    def k(self) -> int:
        """Channels of the output."""
        return self.filters + (self.c if self.with_input else 0)

    @property
    def short(self) -> str:
        """`depthwise 1x56x56x144, 3x3, stride 2x2`."""
        stride = "" if self.stride == (1, 1) else f", stride {self.stride[0]}x{self.stride[1]}"
        filters = "" if self.k == self.c else f" to {self.k}"
        image = f"{self.n}x{self.h}x{self.w}x{self.c}"
        joined = ", with its input" if self.with_input else ""
        return f"depthwise {image}{filters}, {self.r}x{self.s}{stride}{joined}"

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
    def b_shape(self) -> tuple[int, ...]:
        """(R, S, K, 1): the layout HWOI."""
        return self.r, self.s, self.filters, 1

    @property
    def alignment_b(self) -> int:
        """Elements of the weight per vector access."""
        return alignment_elements(self.in_dtype, self.filters)

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add counts as two."""
        return 2 * self.n * self.p * self.q * self.filters * self.r * self.s

    @property
    def extents(self) -> dict[str, int]:
        """The fields of `profiler_conv`, with a group for each channel."""
        return profiled_extents(self, self.c) | {"with_input": int(self.with_input)}

    def resized(self, channels: int, filters: int) -> Depthwise:
        """The convolution of so many channels, each with as many filters as before."""
        made = replace(self, c=channels)
        if filters != made.k:
            raise InvalidProblemError(
                f"Depthwise: {channels} channels of {self.multiplier} filters each make "
                f"{made.k}, not {filters}"
            )
        return made

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return the padding of the weight's dimensions."""
        del channels
        return 0, 0, filters, 0

    def product(self, a: Array, b: Array) -> Array:
        """Return the convolution in FP64."""
        result = np.zeros((*self.d_shape[:-1], self.filters))
        padded = np.repeat(padded_images(self, a), self.multiplier, axis=-1)
        for weights, pixels in zip(b.reshape(-1, self.filters), taps(self, padded), strict=True):
            result += pixels * weights
        return np.concatenate([a, result], axis=-1) if self.with_input else result
