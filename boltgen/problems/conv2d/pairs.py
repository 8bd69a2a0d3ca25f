"""Pairs of pixels as one: half as many, of twice the channels.

A kernel reads 16 bytes of a pixel at once. An image's three channels are padded to four, which are
8 bytes. Where the stride along the width is 2, each output reads whole pairs of pixels: the image
stays in memory as it is, and the weights get zeros where the filter begins or ends within a pair.
ResNet's first convolution, 7x7 of 4 channels, becomes one of 7x4 and 8 channels.
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
    """The convolution of pairs, and how many columns of zeros stand before its filters."""

    problem: Conv2d
    before: int

    def weight(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Filters (K, R, S, C) of pixels as filters (K, R, S', 2 C) of pairs."""
        filters, rows, columns, channels = weight.shape
        behind = _PAIR * self.problem.s - columns - self.before
        wide = np.pad(weight, [(0, 0), (0, 0), (self.before, behind), (0, 0)])
        return wide.reshape(filters, rows, self.problem.s, _PAIR * channels)


def paired(problem: Problem) -> Paired | None:
    """Return the convolution of pairs of pixels that computes the same, or None if none does."""
    if not isinstance(problem, Conv2d) or problem.c != _CHANNELS or problem.groups > 1:
        return None
    if (problem.stride[1], problem.dilation[1], problem.w % _PAIR) != (_PAIR, 1, 0):
        return None
    top, left, bottom, _ = problem.padding
    before = left % _PAIR
    taps = -(-(problem.s + before) // _PAIR)
    front = -(-left // _PAIR)
    # At least 0: a stride of 2 leaves out no pair.
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
