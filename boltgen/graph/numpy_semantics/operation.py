"""An operator without its operands, as the NumPy semantics of operators take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boltgen.errors import InterpretError
from boltgen.graph.attributes import Attributes, Axis
from boltgen.graph.graph import Array, Expr
from boltgen.ir.dtypes import DType

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# Types in which results are stored and no sum is kept.
NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator without operands: its name, its attributes, and its result's shape and dtype."""

    name: str
    attrs: Attributes
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, expr: Expr, shape: Sequence[int] | None = None) -> Operation:
        """The operator of an expression, whose result may have another shape."""
        own = expr.static_shape if shape is None else tuple(shape)
        return cls(name=expr.op, attrs=expr.attrs, shape=own, dtype=expr.dtype)

    @property
    def wide(self) -> str:
        """The dtype in which the operator's sums are kept."""
        return "float32" if self.dtype in NARROW else self.dtype

    def axis(self, rank: int) -> int:
        """Return the one axis of the operator."""
        return self.attrs.of(Axis).at(rank)


def along(axis: int, vector: Array, rank: int) -> Array:
    """Return one number for each place along an axis, or a single number."""
    shape = [1] * rank
    if vector.size > 1:
        shape[axis] = -1
    return vector.reshape(shape)


def is_float(dtype: str) -> bool:
    """Return whether elements of `dtype` are floating-point numbers."""
    return dtype in _FLOATS


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return NumPy's own form of a dtype's name.

    Raises:
        InterpretError: NumPy has no such type.
    """
    try:
        return DType.BF16.numpy if dtype == DType.BF16.value else np.dtype(dtype)
    except TypeError as error:
        raise InterpretError(f"NumPy has no arrays of {dtype!r}") from error
