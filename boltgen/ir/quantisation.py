"""The rules of scales and zero points, however a model spells a quantisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def scale_fault(scales: NDArray[Any]) -> tuple[str, str] | None:
    """Return what is wrong with the scales of a tensor and what to do about it, or None.

    They are finite and positive.
    """
    wide = scales.astype(np.float64)
    for holds, what in (
        (np.isfinite(wide), "not finite"),
        (wide > 0.0, "not positive"),
    ):
        if not holds.all():
            at = int(np.flatnonzero(~holds)[0])
            where = f"[{at}]" if scales.size > 1 else ""
            number = scales.reshape(-1)[at]
            return (
                f"its scale{where} is {number:g}, which is {what}",
                "calibrate the tensor with data whose numbers are finite and not all zero",
            )
    return None


def zero_point_fault(zeros: NDArray[Any], dtype: str) -> tuple[str, str] | None:
    """Return what is wrong with zero points of integers of `dtype`, or None."""
    ends = np.iinfo(dtype)
    beyond = (zeros < ends.min) | (zeros > ends.max) | (zeros != np.trunc(zeros))
    if not beyond.any():
        return None
    number = zeros.reshape(-1)[int(np.flatnonzero(beyond)[0])]
    return (
        f"its zero point {number:g} is no {dtype}, from {ends.min} to {ends.max}",
        f"give the zero point as {dtype}, or quantise to another type",
    )


def axis_fault(
    axis: int, rank: int, counts: Mapping[str, int], extent: int | None
) -> tuple[str, str] | None:
    """Return what is wrong with the axis of several scales, or their number, or None.

    `counts` has the numbers of scales and zero points, `extent` the axis's extent, if it is known.
    """
    if not -max(rank, 1) <= axis < max(rank, 1):
        return (
            f"its axis {axis} does not exist: the tensor has {rank} axes",
            f"name an axis from {-rank} to {rank - 1}",
        )
    for name, count in counts.items():
        if extent is not None and count not in (1, extent):
            return (
                f"it has {count} {name} along axis {axis}, which has {extent} places",
                f"give one, or {extent}",
            )
    return None


def blocks_fault(
    axis: int,
    extents: Sequence[int | str | None],
    block: int,
    shapes: Mapping[str, Sequence[int | str | None]],
) -> tuple[str, str] | None:
    """Return what is wrong with a blocked quantisation's axis, block or shapes, or None.

    `shapes` has the shape of the scales and the shape of the zero points. Both are the tensor's,
    with a place for each block along the axis.
    """
    rank = len(extents)
    if (fault := axis_fault(axis, rank, {}, None)) is not None:
        return fault
    if block < 0:
        return f"its block_size is {block}", "give the length of a block, which is 1 or more"
    for name, shape in shapes.items():
        wanted = list(extents)
        along = wanted[axis]
        wanted[axis] = -(-along // block) if isinstance(along, int) else None
        is_known = all(isinstance(each, int) for each in (*wanted, *shape))
        if len(shape) != rank or (is_known and list(shape) != wanted):
            return (
                f"it has {name} of shape {tuple(shape)}, and blocks of {block} along axis {axis}",
                f"give {name} of shape {tuple(wanted)}",
            )
    return None


def types_fault(whole: str, zero: str) -> tuple[str, str] | None:
    """Return what is wrong with integers of type `whole` and a zero point of `zero`, or None."""
    if whole == zero:
        return None
    return (
        f"it is {whole}, and its zero point {zero}",
        f"give the zero point as {whole}: a quantisation and its dequantisation have one type",
    )
