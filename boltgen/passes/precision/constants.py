"""Convert an anchor's constant operands to its type: cast, scaled by powers of two, or refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boltgen.errors import ModelImportError
from boltgen.graph.graph import Array, GraphBuilder
from boltgen.graph.numpy_semantics.operation import along as in_place
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.call import DeclinedError, OperatorCall
from boltgen.passes.precision.reach import Reach
from boltgen.passes.precision.values import Value, as_c_array

# The least relative RMS error for which a weight is taken to have lost bits: 4 times FP16's own.
_ROUNDING = 2.0**-9
_LARGEST_SHIFT = 126  # 2^-126 is FP32's least normal number


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """An anchor's constant operands and the operators after it, as expressions.

    The product multiplies `weight` in `dtype` and is in `summed`; `factors` and `bias` bring it to
    its result, which is in `stored`.
    """

    weight: int
    bias: int | None
    dtype: str
    summed: str
    stored: str
    factors: int | None = None
    reason: str = ""

    def finish(self, builder: GraphBuilder, made: int) -> int:
        """Return the result of the anchor `made`."""
        if self.factors is not None:
            made = builder.elementwise("multiply", made, self.factors)
        made = builder.in_dtype(made, self.stored)
        return made if self.bias is None else builder.elementwise("add", made, self.bias)


def fold_constants(
    call: OperatorCall,
    weight: Array,
    bias: Array | None,
    reach: Reach,
    *,
    axis: int,
    along: tuple[int, ...],
) -> Folded:
    """Convert the constant operands to the anchors' type if it holds both; else keep FP32 and say
    why.

    Weights of which FP16 has few bits are multiplied by powers of two, and the result by their
    inverses, which changes no bit. `axis` is the output channel's in the weight; in the result the
    channels lie `along` the last dimension.
    """
    arrays = [weight] if bias is None else [weight, bias]
    precision, allow = call.store.precision, call.context.allow_nonfinite
    if not all(fits(each, precision) for each in arrays):
        wide = "float32"
        added = _along(call, bias, along, wide)
        kernel = call.builder.constant(as_c_array(np.asarray(weight, np.float32)))
        return Folded(
            weight=kernel,
            bias=added,
            dtype=wide,
            summed=wide,
            stored=wide,
            reason=_too_large(precision, *arrays),
        )
    if bias is not None:
        as_weight(bias, call.name, precision, allow_nonfinite=allow)
    stored = call.compute_dtype(reach)
    factors = power_of_two(weight, axis, precision, by_channel=reach.is_small)
    scales = None
    if factors is not None:
        weight = weight * in_place(axis, factors, weight.ndim)
        scales = _along(call, 1.0 / factors, along if factors.size > 1 else (), "float32")
    added = _along(call, bias, along, stored)
    narrow = as_weight(weight, call.name, precision, allow_nonfinite=allow)
    return Folded(
        weight=call.builder.constant(as_c_array(narrow)),
        bias=added,
        dtype=call.narrow,
        summed=stored if factors is None else "float32",
        stored=stored,
        factors=scales,
    )


def _along(
    call: OperatorCall, array: Array | None, shape: tuple[int, ...], dtype: str
) -> int | None:
    """Return a constant with one number for each channel."""
    if array is None:
        return None
    with np.errstate(over="ignore"):  # the numbers that are too large are infinite on purpose
        return call.builder.constant(as_c_array(array.astype(dtype).reshape(shape)))


def check_unscaled(call: OperatorCall, *operands: Value) -> None:
    """Check that constants can be multiplied unscaled in FP16.

    Raises:
        DeclinedError: they cannot.
    """
    precision = call.store.precision
    for array in (value.constant for value in operands):
        if array is not None and not fits(array, precision):
            raise DeclinedError(_too_large(precision, array))
        if array is not None and not keeps(array, precision):
            raise DeclinedError(
                f"a constant of it reaches no more than {np.abs(array).max():.0e}, and "
                f"{precision.value} has few bits of such numbers: scale it up"
            )


def _too_large(precision: DType, *arrays: Array) -> str:
    largest = max(float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in arrays)
    return (
        f"a weight of it reaches {largest:g}, and {precision.value} ends at "
        f"{precision.largest:g}: scale it down"
    )


def fits(array: Array, precision: DType) -> bool:
    """Return whether every finite element of `array` is finite in `precision` too."""
    finite = array[np.isfinite(array)]
    return not finite.size or float(np.abs(finite).max()) <= precision.largest


def keeps(array: Array, precision: DType) -> bool:
    """Return whether rounding a constant to `precision` loses no more than it may.

    The RMS of the errors is compared with the RMS of the numbers. Normal FP16 numbers have an error
    of at most 2^-11; 2^-9 is allowed.
    """
    if precision is not DType.F16 or str(array.dtype) == precision.value or not array.size:
        return True
    numbers = array.reshape(-1)
    with np.errstate(over="ignore"):
        if np.dot(numbers, numbers) > precision.smallest_normal**2 * array.size:
            return True  # rounding is off by 2^-25 at most where it is not of normal numbers
    finite = np.where(np.abs(array) <= precision.largest, array, 0).astype(np.float64)
    error = finite - finite.astype(precision.numpy)
    return bool((error**2).sum() <= _ROUNDING**2 * (finite**2).sum())


def power_of_two(array: Array, axis: int, precision: DType, *, by_channel: bool) -> Array | None:
    """Return the factors by which a weight's numbers become normal in `precision`; None for 1.

    One number, or one for each channel along `axis` where `by_channel` asks that each channel keeps
    its bits.
    """
    channels = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    parts = channels if by_channel else array.reshape(1, -1)
    if all(keeps(each, precision) for each in parts):
        return None
    factor = _powers(np.abs(array).max(keepdims=True).reshape(1))
    if all(keeps(each, precision) for each in parts * factor):
        return factor
    return _powers(np.abs(channels).max(1))


def _powers(largest: Array) -> Array:
    """Powers of two that bring numbers to between 1 and 2; their inverses are FP32 numbers."""
    _, exponents = np.frexp(np.where(largest == 0, 1.0, largest).astype(np.float64))
    shifts = np.clip(1 - exponents, -_LARGEST_SHIFT, _LARGEST_SHIFT)
    return np.asarray(np.ldexp(1.0, shifts))


def as_weight(array: Array, operator: str, precision: DType, *, allow_nonfinite: bool) -> Array:
    """A kernel's constant operand in `precision`; its elements are within its range.

    Raises:
        ModelImportError: an element is infinite, or NaN.
    """
    with np.errstate(over="ignore"):
        narrow = array.astype(precision.numpy)
    if not allow_nonfinite and not np.isfinite(narrow).all():
        bad = array.reshape(-1)[np.flatnonzero(~np.isfinite(narrow))[0]]
        raise ModelImportError(
            f"a weight or bias of {operator}, of shape {tuple(array.shape)}, contains {bad:g}; "
            "retrain or re-export the model, or pass allow_nonfinite=True to compile it all the "
            "same"
        )
    return narrow
