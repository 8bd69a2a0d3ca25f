"""Layout transforms: copies of tensors to another dtype, layout or number of channels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import FLOAT_TYPES, DType
from boltgen.ir.functions import Array
from boltgen.problems.without_b import WithoutB


class ImageLayout(Enum):
    """The memory order of a tensor of images."""

    NCHW = "nchw"
    NHWC = "nhwc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a tensor of images in memory."""

    layout: ImageLayout
    dtype: DType

    def __str__(self) -> str:
        return f"{self.layout.value}_{self.dtype.short}"


def nhwc(dtype: DType) -> Form:
    """Return the NHWC form with elements of `dtype`, in which kernels compute."""
    return Form(layout=ImageLayout.NHWC, dtype=dtype)


NHWC_F16 = nhwc(DType.F16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change from one form to another; the sizes are launch arguments.

    One side is NHWC in the type that kernels multiply, and every value is rounded to this type. The
    other side has the same type or FP32.

    Raises:
        InvalidProblemError: the two forms do not fulfil this.
    """

    source: Form
    target: Form

    def __post_init__(self) -> None:
        _ = self.source.dtype.conversions, self.target.dtype.conversions
        types = {self.source.dtype, self.target.dtype}
        is_known = self.narrow.size_bytes == 2 and types <= {self.narrow, DType.F32}
        if not is_known or nhwc(self.narrow) not in (self.source, self.target):
            known = " or ".join(str(nhwc(dtype)) for dtype in FLOAT_TYPES if dtype.accumulators())
            raise InvalidProblemError(
                f"Move: from {self.source} to {self.target}; one of them must be {known}, which "
                "kernels compute in, and the other of that type or FP32"
            )

    @property
    def narrow(self) -> DType:
        """The 16-bit type to which every value is rounded."""
        is_wide = self.source.dtype is DType.F32
        return self.target.dtype if is_wide else self.source.dtype

    def __str__(self) -> str:
        return f"{self.source}_to_{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTransform(WithoutB):
    """A move of `images` images with `pixels` pixels each; added channels are zero.

    Its `gemm` raises an error.
    """

    kind: ClassVar[str] = "layout transform"

    move: Move
    images: int
    pixels: int
    source_channels: int
    target_channels: int

    @property
    def in_dtype(self) -> DType:
        """The type of the source."""
        return self.move.source.dtype

    @property
    def acc_dtype(self) -> DType:
        """The type of the source; nothing is summed."""
        return self.move.source.dtype

    @property
    def out_dtype(self) -> DType:
        """The type of the target."""
        return self.move.target.dtype

    @property
    def short(self) -> str:
        """`nchw_f32_to_nhwc_f16 of 1x3x50176`."""
        return f"{self.move} of {'x'.join(map(str, self.a_shape))}"

    @property
    def is_exact(self) -> bool:
        """True: each value is rounded at most once."""
        return True

    @property
    def storable(self) -> frozenset[DType]:
        """The target's type only."""
        return frozenset({self.out_dtype})

    @property
    def matrix(self) -> tuple[int, int]:
        """The target as a matrix: the product of its leading extents, and its last extent."""
        return prod(self.d_shape[:-1]), self.d_shape[-1]

    @property
    def is_matrix(self) -> bool:
        """False."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(images, pixels, channels), or (images, channels, pixels) for NCHW."""
        return self._shape(self.move.source, self.source_channels)

    @property
    def d_shape(self) -> tuple[int, ...]:
        """The shape of the target, in the order of its layout as in `a_shape`."""
        return self._shape(self.move.target, self.target_channels)

    def _shape(self, form: Form, channels: int) -> tuple[int, ...]:
        if form.layout is ImageLayout.NCHW:
            return self.images, channels, self.pixels
        return self.images, self.pixels, channels

    @property
    def bytes_moved(self) -> int:
        """The bytes that it reads and writes."""
        return self.a_bytes + prod(self.d_shape) * self.out_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_move_args`."""
        return {
            "n": self.images,
            "pixels": self.pixels,
            "source_c": self.source_channels,
            "target_c": self.target_channels,
        }

    def resized(self, channels: int, filters: int) -> LayoutTransform:
        """Return the transform with `channels` source and `filters` target channels."""
        return replace(self, source_channels=channels, target_channels=filters)

    def product(self, a: Array, b: Array) -> Array:
        """Return the target of a source, exactly."""
        del b
        source = a.reshape(self.images, -1, 1, a.shape[-1])
        if self.move.source.layout is ImageLayout.NCHW:
            source = a.reshape(self.images, self.source_channels, self.pixels, 1)
        moved = reference_move(self.move, source, self.target_channels)
        return moved.reshape(self.d_shape).astype(np.float64)


def reference_move(move: Move, source: NDArray[Any], target_c: int) -> NDArray[Any]:
    """Apply `move` to `source`, (N, C, H, W) or (N, H, W, C); the result has `target_c` channels.

    Channels beyond the source's are zero. The result is exact: FP32 is rounded to nearest even.
    """
    rows = source.transpose(0, 2, 3, 1) if move.source.layout is ImageLayout.NCHW else source
    kept = min(rows.shape[-1], target_c)
    padded = np.zeros((*rows.shape[:-1], target_c), move.narrow.numpy)
    padded[..., :kept] = rows[..., :kept].astype(move.narrow.numpy)
    moved = padded.transpose(0, 3, 1, 2) if move.target.layout is ImageLayout.NCHW else padded
    return np.ascontiguousarray(moved.astype(move.target.dtype.numpy))
