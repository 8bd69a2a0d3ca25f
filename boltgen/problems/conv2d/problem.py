"""Convolutions of images, and the matmuls that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from boltgen.ir.dtypes import DType
from boltgen.ir.functions import Array
from boltgen.problems.convolution import Convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d(Convolution):
    """Forward convolution (cross-correlation) of images.

    Activation: (N, H, W, C). Weight: (K, R, S, C / groups). Output: (N, P, Q, K). Padding is (top,
    left, bottom, right), in pixels.

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

    @property
    def group(self) -> Conv2d:
        """The convolution of one group."""
        c, k = self.c // self.groups, self.k // self.groups
        return self if self.groups == 1 else replace(self, c=c, k=k, groups=1)

    def in_groups(self, groups: int) -> Conv2d:
        """Return so many of these convolutions as one in groups."""
        return replace(self, c=groups * self.c, k=groups * self.k, groups=groups)

    def product(self, a: Array, b: Array) -> Array:
        """Return the convolution in FP64."""
        if self.groups == 1:
            return Convolution.product(self, a, b)
        of_groups = np.split(a, self.groups, -1), np.split(b, self.groups)
        return np.concatenate(list(map(self.group.product, *of_groups)), -1)
