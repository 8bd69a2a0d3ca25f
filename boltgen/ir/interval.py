"""Elementwise graphs in FP64 and in intervals: the bounds of a correct FP32 kernel's value.

An end may be infinite: the kernel's value may have overflowed, or anything is right. NaN on both
ends is a certain NaN. There are no half-NaN intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import assert_never
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    Reduction,
    Scalar,
    Softmax,
    Unary,
)
from boltgen.ir.functions import DIVIDE_ULPS, FP32_ULP, Array
from boltgen.ir.softmax import softmax, softmax_ends, up_to_diagonal

_FLOAT32_MAX = DType.F32.largest
# Results below the smallest normal FP32 number may be flushed to zero or rounded as subnormals.
_FLOAT32_TINY = DType.F32.smallest_normal

BINARY_FUNCTIONS = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUBTRACT: np.subtract,
    BinaryOp.MULTIPLY: np.multiply,
    BinaryOp.DIVIDE: np.divide,
    BinaryOp.MAXIMUM: np.maximum,
    BinaryOp.MINIMUM: np.minimum,
}
# Half an ulp for a rounded operation; none for a choice between operands.
BINARY_ULPS = {
    BinaryOp.ADD: 0.5,
    BinaryOp.SUBTRACT: 0.5,
    BinaryOp.MULTIPLY: 0.5,
    BinaryOp.DIVIDE: float(DIVIDE_ULPS),
    BinaryOp.MAXIMUM: 0.0,
    BinaryOp.MINIMUM: 0.0,
}


@dataclass(frozen=True, slots=True)
class Interval:
    """Lower and upper ends, elementwise; both arrays broadcast against the output."""

    low: Array
    high: Array


def around(exact: Array, error: Array) -> Interval:
    """All values within `error` of `exact`; exact infinities and NaN stay certain."""
    error = np.where(np.isfinite(exact), error, 0.0)
    return Interval(exact - error, exact + error)


def unary_image(node: Unary, x: Interval) -> Interval:
    """Enclose the results of `node.op` for arguments in `x`."""
    function = node.op.function
    constants = tuple(as_float32(value) for value in node.params)
    if _is_exact(x) and not (
        function.ulps or function.input_ulps or function.unit_ulps(*constants)
    ):
        value = np.asarray(function.value(x.low, *constants))
        return Interval(value, value)
    corners = [function.value(x.low, *constants), function.value(x.high, *constants)]
    for turn in function.turns:
        inside = (x.low < turn) & (turn < x.high)
        corners.append(np.where(inside, function.value(np.float64(turn), *constants), corners[0]))
    image = _hull(corners)
    # x * f(x) tends to 0 at -inf; whether a kernel returns that or inf * 0 is its own affair.
    at_infinity = np.isnan(image.low) & np.isinf(x.low)
    image = _free(image, at_infinity)
    magnitude = np.maximum(_finite_magnitude(x.low), _finite_magnitude(x.high))
    absolute = function.input_ulps * magnitude + function.unit_ulps(*constants)
    return _widened(image, function.ulps, FP32_ULP * absolute)


def _is_exact(x: Interval) -> bool:
    return x.low is x.high


def exactly(epilogue: ElementwiseGraph, index: int, value: Array) -> Array:
    """Return the value of a node as a kernel has it whose epilogue begins with integers.

    Each of its sums, products, quotients and conversions rounds once to FP32, half to even.
    """
    rounds = isinstance(epilogue.nodes[index], Binary | Cast) and not epilogue.is_whole(index)
    if not epilogue.is_of_integers or not rounds:
        return value
    return np.asarray(value.astype(np.float32), dtype=np.float64)


def binary_image(op: BinaryOp, lhs: Interval, rhs: Interval) -> Interval:
    """Enclose the results of `op` for arguments in `lhs` and `rhs`."""
    function = BINARY_FUNCTIONS[op]
    corners = [np.asarray(function(x, y)) for x in _ends(lhs) for y in _ends(rhs)]
    image = _hull(corners)
    if op is BinaryOp.DIVIDE:
        image = _free(image, (rhs.low <= 0.0) & (rhs.high >= 0.0))
    return _widened(image, BINARY_ULPS[op], np.float64(0.0))


def evaluate(epilogue: ElementwiseGraph, product: Array, arrays: Sequence[Array]) -> list[Array]:
    """The graph's nodes in FP64; `arrays` are its loads, as `reference.broadcast` shapes them.

    For a pair, `product` has two products, one after the other.
    """
    nodes: list[Array] = []
    loaded = iter(arrays)
    for node in epilogue.nodes:
        match node:
            case Accumulator(second=second):
                value = product[int(second)] if epilogue.is_paired else product
            case Load(parts=parts):
                value = next(loaded)
                value = value if parts == 1 else value.sum(axis=-1)
            case Scalar(value=constant):
                value = np.asarray(as_float32(constant))
            case Unary(op=op, x=x, params=params):
                value = np.asarray(op.function.value(nodes[x], *map(as_float32, params)))
            case Binary(op=bop, lhs=lhs, rhs=rhs):
                value = np.asarray(BINARY_FUNCTIONS[bop](nodes[lhs], nodes[rhs]))
            case Cast(x=x, dtype=dtype):
                value = _rounded(nodes[x], dtype)
            case Softmax(x=x, causal=causal, window=window):
                rows = np.broadcast_to(nodes[x], product.shape)
                value = softmax(up_to_diagonal(rows, window) if causal else rows)
            case _:
                assert_never(node)
        nodes.append(exactly(epilogue, len(nodes), value))
    return nodes


def _binary(epilogue: ElementwiseGraph, node: Binary, nodes: Sequence[Interval]) -> Interval:
    """Enclose the results of a node; they are known to the bit if its operands are."""
    lhs, rhs = nodes[node.lhs], nodes[node.rhs]
    if not (epilogue.is_of_integers and _is_exact(lhs) and _is_exact(rhs)):
        return binary_image(node.op, lhs, rhs)
    value = np.asarray(BINARY_FUNCTIONS[node.op](lhs.low, rhs.low))
    value = exactly(epilogue, len(nodes), value)
    return Interval(value, value)


def enclose(
    epilogue: ElementwiseGraph, accumulated: Interval, arrays: Sequence[Array]
) -> list[Interval]:
    """The graph's nodes in intervals; the same walk as `evaluate`."""
    nodes: list[Interval] = []
    loaded = iter(arrays)
    for node in epilogue.nodes:
        match node:
            case Accumulator(second=second):
                image = accumulated
                if epilogue.is_paired:
                    image = Interval(image.low[int(second)], image.high[int(second)])
            case Load(parts=parts):
                array = next(loaded)
                image = Interval(array, array)
                image = image if parts == 1 else reduced(Reduction.SUM, image, (array.ndim - 1,))
            case Scalar(value=constant):
                point = np.asarray(as_float32(constant))
                image = Interval(point, point)
            case Unary():
                image = unary_image(node, nodes[node.x])
            case Binary():
                image = _binary(epilogue, node, nodes)
            case Cast(x=x, dtype=dtype):
                low, high = (_rounded(end, dtype) for end in (nodes[x].low, nodes[x].high))
                image = Interval(low, low if _is_exact(nodes[x]) else high)
            case Softmax(x=x, causal=causal, window=window):
                shape = accumulated.low.shape
                low, high = (np.broadcast_to(end, shape) for end in (nodes[x].low, nodes[x].high))
                if causal:
                    low, high = up_to_diagonal(low, window), up_to_diagonal(high, window)
                image = Interval(*softmax_ends(low, high))
            case _:
                assert_never(node)
        nodes.append(image)
    return nodes


def _rounded(x: Array, dtype: DType) -> Array:
    # To BF16 NumPy rounds by way of FP32. So do kernels, which hold all values in FP32.
    return np.asarray(x.astype(dtype.numpy), dtype=np.float64)


def reduced(reduction: Reduction, x: Interval, axes: tuple[int, ...]) -> Interval:
    """Enclose a kernel's reduction of `x` along `axes`, added in FP32 in any order.

    Source of the sum's bound: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
    """
    match reduction:
        case Reduction.MAXIMUM:
            return Interval(x.low.max(axis=axes), x.high.max(axis=axes))
        case Reduction.SUM:
            terms = x
        case Reduction.SUM_OF_SQUARES:
            ends = (x.low * x.low, x.high * x.high)
            least = np.where((x.low < 0.0) & (x.high > 0.0), 0.0, np.minimum(*ends))
            terms = _widened(Interval(least, np.maximum(*ends)), 0.5, np.float64(0.0))
        case _:
            assert_never(reduction)
    low, high = terms.low.sum(axis=axes), terms.high.sum(axis=axes)
    count = terms.low.size // low.size
    size = np.maximum(_finite_magnitude(terms.low), _finite_magnitude(terms.high)).sum(axis=axes)
    # The smallest normal number once for each addition: subnormal results may be flushed.
    error = math.expm1((count - 1) * math.log1p(DType.F32.unit_roundoff)) * size
    error = error + (count - 1) * _FLOAT32_TINY
    # Infinities of both signs, not all of them certain, may give any sum.
    image = _free(Interval(low, high), np.isnan(low) != np.isnan(high))
    overflows = size + error > _FLOAT32_MAX
    return _free(Interval(image.low - error, image.high + error), overflows & ~np.isnan(low))


def exactly_reduced(reduction: Reduction, x: Array, axes: tuple[int, ...]) -> Array:
    """The reduction of `x` along `axes` in FP64."""
    match reduction:
        case Reduction.MAXIMUM:
            return np.asarray(x.max(axis=axes))
        case Reduction.SUM:
            return np.asarray(x.sum(axis=axes))
        case Reduction.SUM_OF_SQUARES:
            return np.asarray((x * x).sum(axis=axes))
        case _:
            assert_never(reduction)


def as_float32(value: float) -> float:
    """The FP32 number in which a kernel holds a constant."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def rounded_at_any_scale(x: Interval, dtype: DType) -> Interval:
    """`x` after it was multiplied by a number of at least 1, rounded to `dtype`, and divided."""
    absolute = np.float64(dtype.smallest_subnormal / 2)
    size = np.maximum(_finite_magnitude(x.low), _finite_magnitude(x.high))
    error = np.where(size > 0.0, dtype.unit_roundoff * size + absolute, 0.0)
    return Interval(x.low - error, x.high + error)


def round_unbounded(x: Array, dtype: DType) -> Array:
    """Rounds to `dtype` to nearest even, as if its exponent had no upper end."""
    if dtype.is_whole:
        return x  # an integer of the type, or what the type does not have
    rounded = x.astype(dtype.numpy).astype(np.float64)
    digits = dtype.significand_bits
    mantissa, exponent = np.frexp(x)
    beyond = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
    return np.where(np.abs(x) > dtype.largest, beyond, rounded)


def _ends(x: Interval) -> tuple[Array, ...]:
    # Loads and constants are points: one end is enough.
    return (x.low,) if x.low is x.high else (x.low, x.high)


def _hull(corners: list[Array]) -> Interval:
    low = high = propagated = corners[0]
    for corner in corners[1:]:
        low, high = np.fmin(low, corner), np.fmax(high, corner)
        propagated = np.minimum(propagated, corner)
    return _free(Interval(low, high), np.isnan(propagated) & ~np.isnan(low))


def _free(x: Interval, where: NDArray[np.bool_]) -> Interval:
    """`x`, but anything where `where` holds."""
    return Interval(np.where(where, -np.inf, x.low), np.where(where, np.inf, x.high))


def _finite_magnitude(x: Array) -> Array:
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def _widened(x: Interval, ulps: float, absolute: Array) -> Interval:
    """`x` after FP32 rounding: `ulps` of the value and an absolute part; FP32 may overflow."""
    relative = FP32_ULP * ulps
    flush = _FLOAT32_TINY if ulps else 0.0
    low = x.low - (relative * _finite_magnitude(x.low) + absolute + flush)
    high = x.high + (relative * _finite_magnitude(x.high) + absolute + flush)
    return Interval(
        np.where(low < -_FLOAT32_MAX, -np.inf, low), np.where(high > _FLOAT32_MAX, np.inf, high)
    )
