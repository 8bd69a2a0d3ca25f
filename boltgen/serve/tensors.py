"""The protocol's tensors as NumPy arrays: names of types, and numbers as JSON or bytes.

Source: Open Inference Protocol v2, "Tensor Data Types"; BF16 as in Triton.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.errors import InputError, ServingError
from boltgen.ir.dtypes import DType

Array: TypeAlias = npt.NDArray[Any]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": DType.F16.numpy,
    "BF16": DType.BF16.numpy,
    "FP32": DType.F32.numpy,
    "FP64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_MOST_EXTENT = 2**31 - 1
# More than NumPy and TVM support; the product of thousands of extents would take seconds.
_MOST_RANK = 32
# The NumPy kinds of JSON numbers that each kind of tensor accepts: bool, integers, floating point.
# BF16 has the kind V, as all types outside NumPy do.
_TAKEN = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "V": "iuf"}


def datatype_of(dtype: str | np.dtype[Any]) -> str:
    """Return the protocol's name of a model's element type.

    Raises:
        ServingError: the protocol has no such type.
    """
    try:
        return _NAMES[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise ServingError(
            f"a model with tensors of {dtype} cannot be served: the protocol has no such type"
        ) from None


def dtype_of(name: str, datatype: object) -> np.dtype[Any]:
    """Return the NumPy type for the datatype in a request's input `name`.

    Raises:
        InputError: the protocol or boltgen has no such type.
    """
    found = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if found is None:
        raise InputError(f"input {name!r}: datatype {datatype!r} is none of {', '.join(DATATYPES)}")
    return found


def shape_of(name: str, shape: object) -> tuple[int, ...]:
    """Return the shape in a request's input `name`.

    Raises:
        InputError: the shape is no list of extents.
    """
    if (
        not isinstance(shape, Sequence)
        or len(shape) > _MOST_RANK
        or not all(type(extent) is int and 0 <= extent <= _MOST_EXTENT for extent in shape)
    ):
        raise InputError(
            f"input {name!r}: shape is no list of {_MOST_RANK} extents at most, from 0 to "
            f"{_MOST_EXTENT}"
        )
    return tuple(shape)


def from_bytes(name: str, datatype: object, shape: object, data: bytes | memoryview) -> Array:
    """Return a tensor that shares the memory of `data`, in row-major order.

    Raises:
        InputError: type, shape and number of bytes do not fit.
    """
    dtype, extents = dtype_of(name, datatype), shape_of(name, shape)
    needed = math.prod(extents) * dtype.itemsize
    if len(data) != needed:
        raise InputError(
            f"input {name!r}: {datatype}{list(extents)} has {needed} bytes, {len(data)} were sent"
        )
    made = np.frombuffer(data, dtype).reshape(extents)
    if dtype.kind == "b" and (made.view(np.uint8) > 1).any():
        raise InputError(f"input {name!r}: a byte of BOOL is neither 0 nor 1")
    return made


def from_numbers(name: str, datatype: object, shape: object, data: object) -> Array:
    """Return a tensor of JSON's numbers, flat or nested.

    Raises:
        InputError: type, shape and numbers do not fit, or a number is out of the type's range.
    """
    dtype, extents = dtype_of(name, datatype), shape_of(name, shape)
    if not isinstance(data, list):
        raise InputError(f"input {name!r}: data is no list")
    try:
        found = np.array(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"input {name!r}: data is no tensor of numbers ({error})") from None
    if found.size == 0:
        found = found.astype(dtype)
    elif found.dtype.kind not in _TAKEN[dtype.kind]:
        raise InputError(f"input {name!r}: data has other elements than {datatype}'s numbers")
    if found.size != math.prod(extents):
        raise InputError(
            f"input {name!r}: {datatype}{list(extents)} has {math.prod(extents)} elements, "
            f"{found.size} were sent"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        made = found.astype(dtype)
    exact = dtype.kind in "biu"
    lost = made != found if exact else np.isfinite(found) & ~np.isfinite(made)
    if np.any(lost):
        beyond = found[lost].flat[0]
        raise InputError(f"input {name!r}: {beyond} is beyond the range of {datatype}")
    return made.reshape(extents)


def to_numbers(name: str, array: Array) -> list[Any]:
    """Return the elements of an output for JSON, in row-major order.

    Raises:
        InputError: an element is infinite or NaN, which JSON cannot represent.
    """
    wide = array.astype(np.float32) if array.dtype.kind == "V" else array
    if wide.dtype.kind == "f" and not np.isfinite(wide).all():
        raise InputError(
            f"output {name!r} holds infinities or NaN, which JSON has not: ask for binary data"
        )
    return list(wide.ravel().tolist())
