"""Convolutions of volumes, such as videos and medical images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.ir.dtypes import DType
from boltgen.problems.convolution import Convolution
from boltgen.problems.windows import windows_along


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv3d(Convolution):
    """Forward convolution (cross-correlation) of volumes, in one group.

    Activation: (N, D, H, W, C). Weight: (K, T, R, S, C). Output: (N, Z, P, Q, K). Padding is
    (front, top, left, back, bottom, right), in voxels.

    Raises:
        InvalidProblemError: an extent, its own or of its implicit matrix product, is out of range,
            its types are none that a `Gemm` takes, or the filter does not fit into the padded
            activation.
    """

    kind: ClassVar[str] = "conv3d"

    n: int
    depth: int
    h: int
    w: int
    c: int
    k: int
    t: int
    r: int
    s: int
    stride: tuple[int, int, int] = (1, 1, 1)
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    dilation: tuple[int, int, int] = (1, 1, 1)
    in_dtype: DType = DType.F16
    acc_dtype: DType = DType.F32
    out_dtype: DType = DType.F16

    @property
    def z(self) -> int:
        """Planes of the output."""
        return windows_along(self, 0)
