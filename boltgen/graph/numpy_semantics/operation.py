"""An operator without its operands, as the NumPy semantics of operators take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from boltgen.errors import InterpretError
from boltgen.graph.graph import Array
from boltgen.ir.dtypes import DType

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# Types in which results are stored and no sum is kept.
NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator without operands: its name, its attributes, and its result's shape and dtype."""

    name: str
    attrs: Mapping[str, object]
    shape: tuple[int, ...]
    dtype: str

    def integer(self, key: str) -> int:
        """The attribute `key`, which is one integer."""
        return cast("int", self.attrs[key])

    def integers(self, key: str) -> tuple[int, ...]:
        """The attribute `key`, which is several integers."""
        return tuple(cast("Sequence[int]", self.attrs[key]))

    def number(self, key: str) -> float:
        """The attribute `key`, which is a number."""
        return float(cast("float", self.attrs[key]))

    @property
    def wide(self) -> str:
        """The dtype in which the operator's sums are kept."""
        return "float32" if self.dtype in NARROW else self.dtype

    def axes(self, rank: int) -> tuple[int, ...]:
        """The attribute `axis`, which names one axis, several or, by None, all."""
        given = self.attrs["axis"]
        axes = range(rank) if given is None else [given] if isinstance(given, int) else given
        found = tuple(cast("Sequence[int]", axes))
        if any(not -rank <= axis < rank for axis in found):
            raise ValueError(f"an axis of {found} is beyond the {rank} that the tensor has")
        return tuple(axis % rank for axis in found)

    def axis(self, rank: int) -> int:
        """The attribute `axis`, which names one axis."""
        (axis,) = self.axes(rank)
        return axis

    def along(self, vector: Array, rank: int) -> Array:
        """One number for each place along the attribute `axis`, or a single number."""
        shape = [1] * rank
        if vector.size > 1:
            shape[self.axis(rank)] = -1
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
