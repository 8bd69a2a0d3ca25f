"""Group norms of images in NHWC, which include instance norms.

Arrow: like `problem`. `problems.norm.bounds` gives the allowed errors of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import CONVERTED, DType, alignment_elements
from boltgen.ir.extent import divides
from boltgen.ir.functions import Array
from boltgen.problems.checks import check_positive
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.without_b import WithoutB


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNorm(WithoutB):
    """A layer norm of each group of channels in each image, without scale and shift.

    A and D: (N, H, W, C). A group is C / groups neighbouring channels of all pixels. Scale and
    shift per channel are the layer's epilogue. Statistics are in FP32. Its `gemm` raises an error.

    Raises:
        InvalidProblemError: an extent is out of range, `groups` does not divide the channels, or
            `epsilon` is negative or not finite.
    """

    kind: ClassVar[str] = "group_norm"

    n: int
    h: int
    w: int
    c: int
    groups: int
    epsilon: float = 0.0
    in_dtype: DType = DType.F16
    out_dtype: DType = DType.F16

    def __post_init__(self) -> None:
        check_positive(self, ("n", "h", "w", "c", "groups"))
        if not divides(self.groups, self.c):
            raise InvalidProblemError(
                f"GroupNorm: c={self.c} channels; they must be a multiple of groups={self.groups}"
            )
        _ = self.row_norm  # which checks the rest

    @property
    def channels_per_group(self) -> int:
        """Channels of a group."""
        return self.c // self.groups

    @property
    def pixels(self) -> int:
        """Pixels of an image."""
        return self.h * self.w

    @property
    def row_norm(self) -> Norm:
        """The norm of the groups as contiguous rows."""
        return Norm(
            rows=self.n * self.groups,
            columns=self.pixels * self.channels_per_group,
            function=NormFunction.LAYER,
            epsilon=self.epsilon,
            in_dtype=self.in_dtype,
            out_dtype=self.out_dtype,
        )

    @property
    def storable(self) -> frozenset[DType]:
        """All floats, and quantised ones: the result is cast when it is stored."""
        return frozenset({*map(DType, CONVERTED), DType.I8, DType.U8})

    @property
    def matrix(self) -> tuple[int, int]:
        """(N*H*W, C)."""
        return self.n * self.pixels, self.c

    @property
    def short(self) -> str:
        """`group_norm 2x64x64x320 in 32 groups`."""
        return f"group_norm {self.n}x{self.h}x{self.w}x{self.c} in {self.groups} groups"

    @property
    def is_matrix(self) -> bool:
        """False: a group spans the pixels of one image."""
        return False

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(N, H, W, C)."""
        return self.n, self.h, self.w, self.c

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(N, H, W, C)."""
        return self.n, self.h, self.w, self.c

    @property
    def alignment_a(self) -> int:
        """Elements of A per vector access; a vector holds whole groups or a part of one."""
        return self._alignment(self.in_dtype)

    @property
    def alignment_d(self) -> int:
        """Elements of D, and of every tensor of its shape, per vector access."""
        return self._alignment(self.out_dtype)

    def _alignment(self, dtype: DType) -> int:
        of_pixel = alignment_elements(dtype, self.c)
        spans_groups = of_pixel % self.channels_per_group == 0
        return of_pixel if spans_groups else alignment_elements(dtype, self.channels_per_group)

    @property
    def a_bytes(self) -> int:
        """Bytes of A."""
        return self.n * self.pixels * self.c * self.in_dtype.size_bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_image_norm_args`."""
        return {"n": self.n, "pixels": self.pixels, "channels": self.c, "groups": self.groups}

    @property
    def slice_rows(self) -> int:
        """The pixels of an image."""
        return self.pixels

    def resized(self, channels: int, filters: int) -> GroupNorm:
        """Return the norm with `channels` channels, which must equal `filters`."""
        if channels != filters:
            raise InvalidProblemError(f"GroupNorm: {channels} channels of A and {filters} of D")
        return replace(self, c=channels)

    def as_rows(self, images: Array) -> Array:
        """Reshape images to rows: (N * groups, H*W * channels of a group)."""
        apart = images.reshape(self.n, self.pixels, self.groups, self.channels_per_group)
        return np.asarray(apart.transpose(0, 2, 1, 3).reshape(self.row_norm.a_shape))

    def as_stored(self, rows: Array) -> Array:
        """Reshape rows, as `as_rows` returns them, to images."""
        apart = rows.reshape(self.n, self.groups, self.pixels, self.channels_per_group)
        return np.asarray(apart.transpose(0, 2, 1, 3).reshape(self.a_shape))

    def product(self, a: Array, b: Array) -> Array:
        """Return the norm of each group in FP64; `b` is unused."""
        return self.as_stored(self.row_norm.product(self.as_rows(a), b))
