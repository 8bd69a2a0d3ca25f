"""Evaluates operators on constants with numpy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import erf, prod
from typing import cast

import numpy as np

from boltgen.frontend.graph import Array
from boltgen.frontend.passes.normalise.call import OperatorCall
from boltgen.frontend.passes.normalise.values import Value

# What is larger than this, and larger than what it is made of, is computed at run time.
_MOST_ELEMENTS = 1 << 22


def _axis(call: OperatorCall) -> int | None:
    axis = call.attrs["axis"]
    assert axis is None or isinstance(axis, int)
    return axis


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(call: OperatorCall, x: Array) -> Array:
        axis = call.attrs["axis"]
        axes = axis if axis is None or isinstance(axis, int) else tuple(cast("Sequence[int]", axis))
        return function(x, axis=axes, keepdims=bool(call.attrs["keepdims"])).astype(x.dtype)

    return reduce


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": lambda call, x, y: x + y,
    "subtract": lambda call, x, y: x - y,
    "multiply": lambda call, x, y: x * y,
    "divide": lambda call, x, y: (
        np.divide(x, y, dtype=x.dtype) if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)
    ),
    "maximum": lambda call, x, y: np.maximum(x, y),
    "minimum": lambda call, x, y: np.minimum(x, y),
    "power": lambda call, x, y: np.power(x, y),
    "negative": lambda call, x: -x,
    "abs": lambda call, x: np.abs(x),
    "sqrt": lambda call, x: np.sqrt(x),
    "rsqrt": lambda call, x: (1 / np.sqrt(x)).astype(x.dtype),
    "square": lambda call, x: x * x,
    "exp": lambda call, x: np.exp(x),
    "log": lambda call, x: np.log(x),
    "sin": lambda call, x: np.sin(x),
    "cos": lambda call, x: np.cos(x),
    "tanh": lambda call, x: np.tanh(x),
    "sigmoid": lambda call, x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "erf": lambda call, x: np.vectorize(erf, otypes=[x.dtype])(x),
    "clip": lambda call, x: np.clip(x, call.attrs["low"], call.attrs["high"]).astype(x.dtype),
    "floor": lambda call, x: np.floor(x),
    "ceil": lambda call, x: np.ceil(x),
    "equal": lambda call, x, y: x == y,
    "not_equal": lambda call, x, y: x != y,
    "greater": lambda call, x, y: x > y,
    "greater_equal": lambda call, x, y: x >= y,
    "less": lambda call, x, y: x < y,
    "less_equal": lambda call, x, y: x <= y,
    "logical_and": lambda call, x, y: np.logical_and(x, y),
    "logical_or": lambda call, x, y: np.logical_or(x, y),
    "logical_not": lambda call, x: np.logical_not(x),
    "where": lambda call, c, x, y: np.asarray(np.where(c, x, y)),
    "astype": lambda call, x: x.astype(call.dtype),
    "matmul": lambda call, x, y: np.matmul(x, y),
    "sum": _reduction(np.sum),
    "mean": _reduction(np.mean),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
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
    "take": lambda call, x, indices: np.take(x, indices, axis=_axis(call)),
}


def evaluate(call: OperatorCall) -> Array | None:
    """The value of an operator all of whose tensors are constants; None where only TVM can tell."""
    arrays = [arg.constant for arg in call.args if isinstance(arg, Value)]
    if call.name not in _FUNCTIONS or len(arrays) != len(call.args):
        return None
    known = [array for array in arrays if array is not None]
    if len(known) != len(arrays) or _grows(call, known):
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(_FUNCTIONS[call.name](call, *known))
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    # What disagrees with the type that the IR gives is the IR's to compute.
    return result if result.shape == call.shape and str(result.dtype) == call.dtype else None


def _grows(call: OperatorCall, arrays: Sequence[Array]) -> bool:
    size = prod(call.shape)
    return size > _MOST_ELEMENTS and size > sum(array.size for array in arrays)
