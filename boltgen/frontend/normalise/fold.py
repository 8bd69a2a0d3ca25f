"""Evaluates operators on constants with numpy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from boltgen.frontend.normalise.call import OperatorCall
from boltgen.frontend.normalise.dialect import Array
from boltgen.frontend.normalise.values import Value

_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": lambda call, x, y: x + y,
    "subtract": lambda call, x, y: x - y,
    "multiply": lambda call, x, y: x * y,
    "divide": lambda call, x, y: np.divide(x, y, dtype=x.dtype),
    "maximum": lambda call, x, y: np.maximum(x, y),
    "minimum": lambda call, x, y: np.minimum(x, y),
    "power": lambda call, x, y: np.power(x, y),
    "negative": lambda call, x: -x,
    "abs": lambda call, x: np.abs(x),
    "sqrt": lambda call, x: np.sqrt(x),
    "rsqrt": lambda call, x: (1 / np.sqrt(x)).astype(x.dtype),
    "exp": lambda call, x: np.exp(x),
    "log": lambda call, x: np.log(x),
    "astype": lambda call, x: x.astype(call.dtype),
    **dict.fromkeys(
        ("reshape", "expand_dims", "squeeze", "flatten"), lambda call, x: x.reshape(call.shape)
    ),
    "broadcast_to": lambda call, x: np.broadcast_to(x, call.shape),
    "full_like": lambda call, x, value: np.full(x.shape, value, x.dtype),
    "permute_dims": lambda call, x: x.transpose(call.attrs["axes"]),
    "take": lambda call, x, indices: np.take(x, indices, axis=call.attrs["axis"]),
}


def evaluate(call: OperatorCall) -> Array | None:
    """The value of an operator all of whose tensors are constants; None where only TVM can tell."""
    arrays = [arg.constant for arg in call.args if isinstance(arg, Value)]
    if call.name not in _FUNCTIONS or not arrays or any(array is None for array in arrays):
        return None
    if any(isinstance(arg, tuple) for arg in call.args):
        return None
    try:
        with np.errstate(all="ignore"):
            result = _FUNCTIONS[call.name](call, *arrays)
    except (ValueError, IndexError, TypeError):
        return None
    return np.asarray(result)
