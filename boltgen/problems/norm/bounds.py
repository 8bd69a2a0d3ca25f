"""Bounds of the norm of a row, as a correct FP32 kernel computes it.

The kernel may add in any order. It computes the mean first, then the squares of the differences
from the mean. Source of the bound of sums: Higham, Accuracy and Stability of Numerical Algorithms,
section 4.2.
"""

from __future__ import annotations

import math

import numpy as np

from boltgen.errors import assert_never
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, Unary
from boltgen.ir.functions import DIVIDE_ULPS, Array, UnaryOp
from boltgen.ir.interval import Interval, as_float32, binary_image, unary_image
from boltgen.ir.softmax import softmax_ends
from boltgen.problems.norm.problem import Norm, NormFunction

_U = DType.F32.unit_roundoff
_TINY = DType.F32.smallest_normal
_LARGEST = DType.F32.largest


def norm_ends(problem: Norm, exact: Array, x: Interval) -> Interval:
    """Return the least and greatest correct results for rows within the interval `x`.

    `exact` has the rows in FP64. An infinite end means that any result is correct, NaN that the
    result must be NaN.
    """
    match problem.function:
        case NormFunction.SOFTMAX:
            return Interval(*softmax_ends(x.low, x.high))
        case NormFunction.LAYER | NormFunction.RMS:
            return _scaled(problem, exact, x)
        case _:
            assert_never(problem.function)


def _scaled(problem: Norm, exact: Array, x: Interval) -> Interval:
    is_centred = problem.function is NormFunction.LAYER
    count = exact.shape[-1]
    # The roundings of one element, of the sum of `count` elements, and of the division by `count`.
    mean_rounding = math.expm1((count - 1 + DIVIDE_ULPS) * math.log1p(2 * _U))
    off = np.maximum(x.high - exact, exact - x.low)
    size = np.abs(exact) + off
    centred, error = exact, off
    if is_centred:
        centred = exact - _mean(exact)
        mean_error = _mean(off) + mean_rounding * _mean(size) + count * _TINY
        error = off + mean_error
        error = error + _U * (np.abs(centred) + error) + _TINY
    most = np.abs(centred) + error
    variance = _mean(np.square(centred))
    # A square is rounded once more before it is added.
    variance_rounding = math.expm1((count + DIVIDE_ULPS) * math.log1p(2 * _U))
    variance_error = (
        _mean(2.0 * np.abs(centred) * error + np.square(error))
        + variance_rounding * _mean(np.square(most))
        + 2 * count * _TINY
    )
    around = Interval(np.maximum(variance - variance_error, 0.0), variance + variance_error)
    epsilon = np.asarray(as_float32(problem.epsilon))
    raised = binary_image(BinaryOp.ADD, around, Interval(epsilon, epsilon))
    raised = Interval(np.maximum(raised.low, 0.0), raised.high)
    factor = unary_image(Unary(UnaryOp.RSQRT, 0), raised)
    made = binary_image(BinaryOp.MULTIPLY, Interval(centred - error, centred + error), factor)
    # Not sure: a sum may overflow, the root's operand may be zero, or an element is unbounded.
    is_sure = (
        (_sum(size) * (1 + mean_rounding) < _LARGEST)
        & (_sum(np.square(most)) * (1 + variance_rounding) < _LARGEST)
        & (raised.low > 0.0)
        & np.isfinite(off).all(axis=-1, keepdims=True)
    )
    undefined = _is_undefined(x, is_centred=is_centred)
    low = np.where(is_sure, made.low, -np.inf)
    high = np.where(is_sure, made.high, np.inf)
    return Interval(np.where(undefined, np.nan, low), np.where(undefined, np.nan, high))


def _is_undefined(x: Interval, *, is_centred: bool) -> Array:
    """Find elements that must be NaN: rows with NaN; an infinity, or its whole row if centred."""
    is_nan = np.isnan(x.low) & np.isnan(x.high)
    is_infinite = (x.low == np.inf) | (x.high == -np.inf)
    whole = is_nan | is_infinite if is_centred else is_nan
    # Without centring an infinity makes the other elements 0 and itself NaN: inf * 0.
    return np.asarray(whole.any(axis=-1, keepdims=True) | is_infinite)


def _mean(x: Array) -> Array:
    return np.asarray(x.mean(axis=-1, keepdims=True))


def _sum(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1, keepdims=True))
