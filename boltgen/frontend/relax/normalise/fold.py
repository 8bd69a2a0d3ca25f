"""Evaluates operators on constants with numpy.

TVM's FoldConstant compiles each expression with LLVM; for the few operators that models apply to
their weights that takes far longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

Array = npt.NDArray[Any]


def to_array(constant: ir.GenericConst) -> Array:
    """A constant's elements, without a copy where DLPack knows the dtype."""
    try:
        return np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):
        array: Array = constant.value.numpy()
        return array


def _shape(call: ir.Call) -> tuple[int, ...]:
    shape = call.ty.shape.values
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise ValueError(f"{call.op.name} of constants has a symbolic shape")
    return tuple(int(extent) for extent in shape)


def _take(call: ir.Call, x: Array, indices: Array) -> Array:
    return np.take(x, indices, axis=call.attrs.axis)


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
    "astype": lambda call, x: x.astype(str(call.ty.dtype)),
    "reshape": lambda call, x: x.reshape(_shape(call)),
    "expand_dims": lambda call, x: x.reshape(_shape(call)),
    "squeeze": lambda call, x: x.reshape(_shape(call)),
    "flatten": lambda call, x: x.reshape(_shape(call)),
    "broadcast_to": lambda call, x: np.broadcast_to(x, _shape(call)),
    "permute_dims": lambda call, x: x.transpose(call.attrs.axes),
    "take": _take,
}


def evaluate(name: str, call: ir.Call, arrays: list[Array]) -> Array | None:
    """The value of operator `name` on constants, or None where only TVM can tell."""
    if name not in _FUNCTIONS:
        return None
    plain = [arg for arg in call.args if isinstance(arg, (ir.GenericConst, relax.Var))]
    if len(plain) != len(arrays):
        return None
    try:
        with np.errstate(all="ignore"):
            result = _FUNCTIONS[name](call, *arrays)
    except (ValueError, IndexError, TypeError):
        return None
    return np.asarray(result)
