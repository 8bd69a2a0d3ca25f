"""Evaluates operators on constants with numpy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf, prod
from typing import Any, cast

import numpy as np

from boltgen.graph.graph import Array
from boltgen.ir.extent import Dim
from boltgen.passes.precision.call import OperatorCall
from boltgen.passes.precision.values import Value

# What is larger than this, and larger than what it is made of, is computed at run time.
_MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An operator on known operands: its result's shape and dtype, all sizes numbers."""

    name: str
    attrs: Mapping[str, object]
    shape: tuple[int, ...]
    dtype: str


def _axis(call: Applied) -> Any:
    axis = call.attrs["axis"]
    return axis if axis is None or isinstance(axis, int) else tuple(cast("Sequence[int]", axis))


def _reduced(call: Applied, x: Array) -> Array:
    options = {"axis": _axis(call), "keepdims": bool(call.attrs["keepdims"])}
    return np.asarray(getattr(np, call.name)(x, **options), x.dtype)


def _summed_up(call: Applied, x: Array) -> Array:
    """The sums of each element and all before it along an axis."""
    if call.attrs["exclusive"]:
        raise ValueError("only TVM sums up what is before each element alone")
    return np.cumsum(x, _axis(call), call.dtype)


def _sliced(call: Applied, x: Array) -> Array:
    axis, begin, end = (cast("int", call.attrs[key]) for key in ("axis", "begin", "end"))
    return np.asarray(x[(slice(None),) * axis + (slice(begin, end),)])


def _gathered(call: Applied, x: Array, places: Array) -> Array:
    """The elements of `x` at places along an axis, elsewhere at a result's own place."""
    if places.min(initial=0) < 0:
        raise ValueError("only TVM can tell what is before the first")
    axis = cast("int", call.attrs["axis"]) % x.ndim
    own = tuple(
        slice(None) if at == axis else slice(extent) for at, extent in enumerate(places.shape)
    )
    return np.take_along_axis(x[own], places, axis)


def _scattered(call: Applied, x: Array, part: Array) -> Array:
    """`x` with `part` in the place of a slice of it."""
    axis, *span = (cast("int", call.attrs[key]) for key in ("axis", "begin", "end", "step"))
    made: Array = x.copy()
    made[(slice(None),) * (axis % x.ndim) + (slice(*span),)] = part
    return made


def _of_numpy(call: Applied, *arrays: Array) -> Array:
    return np.asarray(getattr(np, call.name)(*arrays))


def _dequantised(call: Applied, x: Array, scale: Array, zero: Array) -> Array:
    """(x - zero point) * scale, of a tensor or along an axis."""
    along = [1] * x.ndim
    along[cast("int", call.attrs["axis"]) % x.ndim] = -1
    scale, zero = (each.reshape(along if each.size > 1 else ()) for each in (scale, zero))
    return ((x.astype(np.float32) - zero.astype(np.float32)) * scale).astype(call.dtype)


def _remainder(call: Applied, x: Array, y: Array) -> Array:
    """The remainder of integers that are not negative: for others there are two conventions."""
    del call
    if x.dtype.kind not in "iu" or x.min(initial=0) < 0 or y.min(initial=1) < 1:
        raise ValueError("only TVM can tell the sign")
    return np.asarray(x % y)


# Those that numpy has under the same name, with the same operands.
_PLAIN = (
    *("add", "subtract", "multiply", "maximum", "minimum", "power", "negative", "abs", "sqrt"),
    *("square", "exp", "log", "sin", "cos", "tanh", "floor", "ceil", "matmul", "where"),
    *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
    *("logical_and", "logical_or", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_not"),
)
_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **dict.fromkeys(_PLAIN, _of_numpy),
    **dict.fromkeys(("sum", "mean", "max", "min"), _reduced),
    "cumsum": _summed_up,
    "divide": lambda call, x, y: (
        np.divide(x, y, dtype=x.dtype) if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)
    ),
    "dequantize": _dequantised,
    "mod": _remainder,
    "rsqrt": lambda call, x: (1 / np.sqrt(x)).astype(x.dtype),
    "sigmoid": lambda call, x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "erf": lambda call, x: np.vectorize(erf, otypes=[x.dtype])(x),
    "clip": lambda call, x: np.clip(x, call.attrs["low"], call.attrs["high"]).astype(x.dtype),
    "astype": lambda call, x: x.astype(call.dtype),
    "concat": lambda call, *parts: np.concatenate(parts, _axis(call)),
    "stack": lambda call, *parts: np.stack(parts, _axis(call) or 0),
    **dict.fromkeys(
        ("reshape", "expand_dims", "squeeze", "flatten"), lambda call, x: x.reshape(call.shape)
    ),
    "broadcast_to": lambda call, x: np.broadcast_to(x, call.shape),
    "full_like": lambda call, x, value: np.full(x.shape, value, x.dtype),
    "triu": lambda call, x: np.triu(x, cast("int", call.attrs["k"])),
    "tril": lambda call, x: np.tril(x, cast("int", call.attrs["k"])),
    "permute_dims": lambda call, x: x.transpose(call.attrs["axes"]),
    "strided_slice": _sliced,
    "slice_scatter": _scattered,
    "gather_elements": _gathered,
    "take": lambda call, x, indices: np.take(x, indices, axis=_axis(call)),
}


def evaluate(call: OperatorCall) -> Array | None:
    """The value of an operator all of whose tensors are constants; None where only TVM can tell."""
    arrays = [arg.constant for arg in call.args if isinstance(arg, Value)]
    is_symbolic = any(isinstance(extent, Dim) for extent in call.shape)
    if call.name not in _FUNCTIONS or len(arrays) != len(call.args) or is_symbolic:
        return None
    known = [array for array in arrays if array is not None]
    if len(known) != len(arrays) or _grows(call, known):
        return None
    return applied(
        Applied(name=call.name, attrs=call.attrs, shape=call.shape, dtype=call.dtype), known
    )


def applied(operator: Applied, arrays: Sequence[Array]) -> Array | None:
    """The result of an operator on `arrays`; None where only TVM can tell."""
    if operator.name not in _FUNCTIONS:
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(_FUNCTIONS[operator.name](operator, *arrays))
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    # What disagrees with the type that the IR gives is the IR's to compute.
    is_typed = result.shape == operator.shape and str(result.dtype) == operator.dtype
    return result if is_typed else None


def _grows(call: OperatorCall, arrays: Sequence[Array]) -> bool:
    size = prod(call.shape)
    return size > _MOST_ELEMENTS and size > sum(array.size for array in arrays)
