"""Compute a convolution on pairs of pixels: half the width, twice the channels.

A kernel reads 16 bytes of a pixel at once, but an image's three channels, padded to four, are 8
bytes. If the stride along the width is 2, each output reads whole pairs of pixels: the image keeps
its memory layout, and the filters get zero columns where they begin or end within a pair. ResNet's
first convolution, 7x7 with 4 channels, becomes 7x4 with 8 channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import Problem

_PAIR, _CHANNELS = 2, 4


@dataclass(frozen=True, slots=True)
class Paired:
    """The convolution on pairs, and the number of zero columns before its filters: 0 or 1."""

    problem: Conv2d
    before: int

    def weight(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Return filters (K, R, S, C) of pixels as filters (K, R, S', 2 C) of pairs."""
        filters, rows, columns, channels = weight.shape
        behind = _PAIR * self.problem.s - columns - self.before
        wide = np.pad(weight, [(0, 0), (0, 0), (self.before, behind), (0, 0)])
        return wide.reshape(filters, rows, self.problem.s, _PAIR * channels)


def paired(problem: Problem) -> Paired | None:
    """Return the equal convolution on pairs of pixels, or None if `problem` does not allow it."""
    if not isinstance(problem, Conv2d) or problem.c != _CHANNELS:
        return None
    if (problem.stride[1], problem.dilation[1], problem.w % _PAIR) != (_PAIR, 1, 0):
        return None
    top, left, bottom, _ = problem.padding
    before = left % _PAIR
    taps = -(-(problem.s + before) // _PAIR)
    front = -(-left // _PAIR)
    # The padding on the right, in pairs. It is not negative: with a stride of 2 no pair is skipped.
    behind = problem.q - 1 + taps - problem.w // _PAIR - front
    made = replace(
        problem,
        w=problem.w // _PAIR,
        c=_PAIR * _CHANNELS,
        s=taps,
        stride=(problem.stride[0], 1),
        padding=(top, front, bottom, behind),
    )
    return Paired(made, before)
