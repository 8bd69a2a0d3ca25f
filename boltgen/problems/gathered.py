"""Rows that a kernel takes of A by a tensor of integers: `x[rows]`, never written to memory.

Arrow: like `problem`. Which row an integer that is none takes is said here, for all kernels and for
the oracle: one below 0 takes the first row, one beyond the last row the last. So do TVM's `take` in
its modes "clip" and "fast"; the latter reads beside the tensor there. Nothing counts from the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import IndexType

_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """So many rows that are taken `of` a tensor's, by integers of `dtype`, one for each.

    Rows may be taken in any order, several times or never.
    """

    rows: int
    of: int
    dtype: IndexType

    @property
    def distinct(self) -> int:
        """The most different rows of the tensor that are read."""
        return min(self.rows, self.of)

    @property
    def bytes(self) -> int:
        """Bytes of the integers."""
        return self.rows * self.dtype.size_bytes

    def taken(self, a: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """The rows of `a`, (of, columns), that the integers `rows` take: (rows, columns)."""
        made: NDArray[Any] = a.reshape(self.of, -1)[np.clip(rows.reshape(-1), 0, self.of - 1)]
        return made


def check_gathered(kind: str, of: int | None, dtype: IndexType | None) -> None:
    """Check the two fields by which a problem says that its rows are taken.

    Raises:
        InvalidProblemError: there is one without the other, or a number of rows out of range.
    """
    if (of is None) != (dtype is None):
        raise InvalidProblemError(
            f"{kind}: a_rows={of} and rows_dtype={dtype}; rows are taken of so many by integers of "
            "a type, or A has them in order"
        )
    if of is not None and not 1 <= of <= _MOST_ROWS:
        raise InvalidProblemError(
            f"{kind}: a_rows={of} is out of range; extents are 1 to {_MOST_ROWS}"
        )
