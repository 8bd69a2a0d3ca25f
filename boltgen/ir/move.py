"""Moves: tensors that change dtype, layout or number of channels, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType


class ImageLayout(Enum):
    """The memory order of a tensor of images."""

    NCHW = "nchw"
    NHWC = "nhwc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a tensor of images lies in memory."""

    layout: ImageLayout
    dtype: DType

    def __str__(self) -> str:
        return f"{self.layout.value}_{self.dtype.short}"


NHWC_F16 = Form(layout=ImageLayout.NHWC, dtype=DType.F16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """From one form to another; the number of channels is a launch argument.

    One side is NHWC in FP16, which is what kernels compute in: a value passes through FP16.

    Raises:
        InvalidProblemError: neither side is.
    """

    source: Form
    target: Form

    def __post_init__(self) -> None:
        if NHWC_F16 not in (self.source, self.target):
            raise InvalidProblemError(
                f"Move: from {self.source} to {self.target}; one of them must be {NHWC_F16}, "
                "which kernels compute in"
            )

    def __str__(self) -> str:
        return f"{self.source}_to_{self.target}"


def reference_move(move: Move, source: NDArray[Any], target_c: int) -> NDArray[Any]:
    """What `move` makes of `source`, (N, C, H, W) or (N, H, W, C), with `target_c` channels.

    Channels beyond the source's are zero. Exact: FP32 is rounded to FP16 to nearest even.
    """
    nhwc = source.transpose(0, 2, 3, 1) if move.source.layout is ImageLayout.NCHW else source
    kept = min(nhwc.shape[-1], target_c)
    padded = np.zeros((*nhwc.shape[:-1], target_c), np.float16)
    padded[..., :kept] = nhwc[..., :kept].astype(np.float16)
    moved = padded.transpose(0, 3, 1, 2) if move.target.layout is ImageLayout.NCHW else padded
    return np.ascontiguousarray(moved.astype(move.target.dtype.numpy))
