"""The softmax of rows in FP64, and the bounds of a correct FP32 kernel's softmax.

A kernel may go through a row in steps, and scale what it summed before when it finds a greater
maximum. Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from boltgen.ir.dtypes import DType
from boltgen.ir.functions import DIVIDE_ULPS, FP32_ULP, Array

# The error of a base-2 exponential. Source: PTX ISA, ex2.approx.ftz.f32.
EXPONENTIAL_ULPS = 2.0
# The difference x - maximum, log2(e) and the product of both round by half an ulp; each moves the
# exponent by that share of the difference. Differences of steps add up to the difference of the
# whole row.
ARGUMENT_ULPS = 1.5
# A step has at least so many elements; it scales by an exponential, and rounds.
LEAST_STEP = 16
_SCALING_ULPS = EXPONENTIAL_ULPS + 0.5


def softmax(x: Array) -> Array:
    """The softmax along the last axis: NaN where a row has NaN or +inf, or nothing but -inf."""
    greatest = x.max(axis=-1, keepdims=True)
    raised = np.exp(x - greatest)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def up_to_diagonal(x: Array, window: int = 0) -> Array:
    """Return `x` with -inf after each row's last column; the last row has all columns.

    With a `window` also before its last so many.
    """
    rows, columns = x.shape[-2:]
    seen = np.tri(rows, columns, columns - rows, dtype=bool)
    if window:
        seen &= ~np.tri(rows, columns, columns - rows - window, dtype=bool)
    return np.where(seen, x, -np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxRounding:
    """The bound of a kernel's softmax of rows of one length around the exact softmax.

    Relative to it, expm1(fixed + of_difference * |x - maximum|); and by `flushed`.
    """

    fixed: float
    of_difference: float
    flushed: float

    def relative(self, difference: Array) -> Array:
        """Return the bound of elements that are so far below the row's maximum."""
        return np.asarray(np.expm1(self.fixed + self.of_difference * difference))


def softmax_rounding(count: int) -> SoftmaxRounding:
    """Return the bound of rows of `count` elements.

    An element's own exponential, the sum of all, the scaling of both, and the division.
    """
    steps = -(-count // LEAST_STEP)
    # The mean of all differences, weighted by their exponentials, is at most log(count): their
    # entropy is that mean and the logarithm of the sum, which is not negative.
    differences = ARGUMENT_ULPS * math.log(count)
    exponentials = 2 * (EXPONENTIAL_ULPS + steps * _SCALING_ULPS) + differences
    additions = 0.5 * count
    return SoftmaxRounding(
        fixed=FP32_ULP * (exponentials + additions + DIVIDE_ULPS),
        of_difference=FP32_ULP * ARGUMENT_ULPS,
        # Each scaling may flush a subnormal result.
        flushed=steps * DType.F32.smallest_normal,
    )


def softmax_ends(low: Array, high: Array) -> tuple[Array, Array]:
    """The least and the greatest that a kernel may have for elements between `low` and `high`.

    The softmax of an element grows with it and falls with the others. Infinite ends: anything.
    """
    greatest = high.max(axis=-1, keepdims=True)
    least_power, most_power = np.exp(low - greatest), np.exp(high - greatest)
    least_sum = least_power.sum(axis=-1, keepdims=True)
    most_sum = most_power.sum(axis=-1, keepdims=True)
    least = least_power / (least_power + np.maximum(most_sum - most_power, 0.0))
    most = most_power / (most_power + np.maximum(least_sum - least_power, 0.0))
    rounding = softmax_rounding(low.shape[-1])
    span = np.where(np.isfinite(low - greatest), np.abs(low - greatest), 0.0)
    error = rounding.relative(span)
    flushed = np.where(high == -np.inf, 0.0, rounding.flushed)
    least = np.maximum(least * (1.0 - error) - flushed, 0.0)
    most = most * (1.0 + error) + flushed
    undefined = np.isnan(low) | (low == np.inf)
    certain = undefined.any(-1, keepdims=True) | (high == -np.inf).all(-1, keepdims=True)
    anything = (high == np.inf).any(-1, keepdims=True) | (low == -np.inf).all(-1, keepdims=True)
    free = anything & ~certain
    least, most = (np.where(certain, np.nan, each) for each in (least, most))
    return np.where(free, -np.inf, least), np.where(free, np.inf, most)
