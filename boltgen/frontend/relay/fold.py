"""Evaluates Relay operators on constants with numpy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relay

from boltgen.frontend.normalise.dialect import Array
from boltgen.frontend.relay.attributes import static_shape


def _take(call: relay.Call, attrs: Mapping[str, Any], x: Array, indices: Array) -> Array:
    return np.take(x, indices, axis=None if call.attrs.axis is None else int(call.attrs.axis))


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": lambda call, attrs, x, y: x + y,
    "subtract": lambda call, attrs, x, y: x - y,
    "multiply": lambda call, attrs, x, y: x * y,
    "divide": lambda call, attrs, x, y: np.divide(x, y, dtype=x.dtype),
    "maximum": lambda call, attrs, x, y: np.maximum(x, y),
    "minimum": lambda call, attrs, x, y: np.minimum(x, y),
    "power": lambda call, attrs, x, y: np.power(x, y),
    "negative": lambda call, attrs, x: -x,
    "abs": lambda call, attrs, x: np.abs(x),
    "sqrt": lambda call, attrs, x: np.sqrt(x),
    "rsqrt": lambda call, attrs, x: (1 / np.sqrt(x)).astype(x.dtype),
    "exp": lambda call, attrs, x: np.exp(x),
    "log": lambda call, attrs, x: np.log(x),
    "astype": lambda call, attrs, x: x.astype(str(call.checked_type.dtype)),
    "reshape": lambda call, attrs, x: x.reshape(static_shape(call)),
    "broadcast_to": lambda call, attrs, x: np.broadcast_to(x, static_shape(call)),
    "full_like": lambda call, attrs, x, value: np.full(x.shape, value, x.dtype),
    "permute_dims": lambda call, attrs, x: x.transpose(attrs["axes"]),
    "take": _take,
}


def evaluate(
    name: str, call: relay.Call, attrs: Mapping[str, Any], arrays: list[Array]
) -> Array | None:
    """The value of operator `name` on constants, or None where only TVM can tell."""
    if name not in _FUNCTIONS or len(arrays) != len(call.args):
        return None
    try:
        with np.errstate(all="ignore"):
            result = _FUNCTIONS[name](call, attrs, *arrays)
    except (ValueError, IndexError, TypeError):
        return None
    return np.asarray(result)
