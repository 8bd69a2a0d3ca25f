"""Norms of rows: layer norm, RMS norm and softmax.

Arrow: like `problem`. `problems.norm.bounds` has the bounds of a correct FP32 kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

import numpy as np

from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.dtypes import CONVERTED, DType, IndexType
from boltgen.ir.functions import Array
from boltgen.ir.softmax import softmax
from boltgen.problems.checks import check_positive, check_read_floats, check_slices
from boltgen.problems.gathered import Gathered, check_gathered
from boltgen.problems.without_b import WithoutB


class NormFunction(Enum):
    """The function of a row x of n elements."""

    LAYER = "layer_norm"  # (x - mean) / sqrt(variance + epsilon); the variance divides by n
    RMS = "rms_norm"  # x / sqrt(mean of squares + epsilon)
    SOFTMAX = "softmax"  # exp(x - maximum) / sum of exp(x - maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm(WithoutB):
    """A norm of each row, without scale and shift, which are the layer's epilogue.

    A and D: (rows, columns). Statistics are in FP32. Its `gemm` raises an error. Every `slice_rows`
    neighbouring rows are a slice, as in a `Gemm`. If A is (`a_rows`, columns), a tensor `rows`,
    (rows,) of `rows_dtype`, gathers its rows (see `problems.gathered`), for example from an
    embedding table.

    Raises:
        InvalidProblemError: an extent is out of range; `epsilon` is negative or not finite, or is
            given to a softmax; only one of `a_rows` and `rows_dtype` is given; `slice_rows` is
            negative.
    """

    kind: ClassVar[str] = "norm"

    rows: int
    columns: int
    function: NormFunction
    epsilon: float = 0.0
    in_dtype: DType = DType.F16
    out_dtype: DType = DType.F16
    a_rows: int | None = field(default=None, metadata={"absent_at_default": True})
    rows_dtype: IndexType | None = field(default=None, metadata={"absent_at_default": True})
    slice_rows: int = field(default=0, metadata={"absent_at_default": True})

    def __post_init__(self) -> None:
        check_positive(self, ("rows", "columns"))
        _ = self.in_dtype.conversions, self.out_dtype.conversions
        check_read_floats(self)
        check_gathered("Norm", self.a_rows, self.rows_dtype)
        check_slices(self, self.slice_rows)
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise InvalidProblemError(f"Norm: epsilon={self.epsilon}; it is finite and at least 0")
        if self.function is NormFunction.SOFTMAX and self.epsilon:
            raise InvalidProblemError(f"Norm: epsilon={self.epsilon}; a softmax has none")

    @property
    def gathered(self) -> Gathered | None:
        """The rows that are gathered from A, or None if A has them in order."""
        if self.a_rows is None or self.rows_dtype is None:
            return None
        return Gathered(rows=self.rows, of=self.a_rows, dtype=self.rows_dtype)

    @property
    def storable(self) -> frozenset[DType]:
        """All floats, and quantised ones: the result is cast when it is stored."""
        return frozenset({*map(DType, CONVERTED), DType.I8, DType.U8}) - {DType.I32}

    @property
    def matrix(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, self.columns

    @property
    def short(self) -> str:
        """`layer_norm 64x768`, and the rows of A if they are gathered."""
        taken = "" if self.a_rows is None else f", its rows taken of {self.a_rows}"
        return f"{self.function.value} {self.rows}x{self.columns}{taken}"

    @property
    def is_matrix(self) -> bool:
        """True: the rows may have several dimensions."""
        return True

    @property
    def a_shape(self) -> tuple[int, ...]:
        """(rows, columns), or (a_rows, columns) if rows are gathered."""
        return self.rows if self.a_rows is None else self.a_rows, self.columns

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(rows, columns)."""
        return self.rows, self.columns

    @property
    def a_bytes(self) -> int:
        """Bytes of A that are read, each gathered row once, and of the integers of the gather."""
        row_bytes = self.columns * self.in_dtype.size_bytes
        if (taken := self.gathered) is None:
            return self.rows * row_bytes
        return taken.distinct * row_bytes + taken.bytes

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of `boltgen_norm_args`."""
        n = self.columns
        return {"rows": self.rows, "columns": n, "lda": n, "ldd": n}

    @property
    def extents(self) -> dict[str, int]:
        """Rows and columns; the profiler has no struct for norms."""
        return {"rows": self.rows, "columns": self.columns}

    def in_slices(self, rows: int) -> Norm:
        """Return the norm with slices of `rows` rows; 0 means without slices."""
        return self if rows == self.slice_rows else replace(self, slice_rows=rows)

    def resized(self, channels: int, filters: int) -> Norm:
        """Return the norm with `channels` columns, which must equal `filters`."""
        if channels != filters:
            raise InvalidProblemError(f"Norm: {channels} columns of A and {filters} of D")
        return replace(self, columns=channels)

    @property
    def row_norm(self) -> Norm:
        """Itself."""
        return self

    def as_rows(self, matrix: Array) -> Array:
        """Return the matrix itself: its rows are the norm's rows."""
        return matrix

    def as_stored(self, rows: Array) -> Array:
        """Return the rows themselves."""
        return rows

    def product(self, a: Array, b: Array) -> Array:
        """Return the norm of each row in FP64; `b` is unused."""
        del b
        match self.function:
            case NormFunction.LAYER:
                centred = a - a.mean(axis=-1, keepdims=True)
            case NormFunction.RMS:
                centred = a
            case NormFunction.SOFTMAX:
                return softmax(a)
            case _:
                assert_never(self.function)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        epsilon = float(np.float32(self.epsilon))
        return np.asarray(centred * (1.0 / np.sqrt(variance + epsilon)), dtype=np.float64)


def as_norm_of_rows(problem: object) -> Norm | None:
    """Return `problem` if it is a norm of rows, else None."""
    return problem if isinstance(problem, Norm) else None
