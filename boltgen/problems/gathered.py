"""Rows that a kernel gathers from A by a tensor of integers, as in `x[rows]`, without a copy.

Arrow: like `problem`. Kernels and the oracle clamp the integers: one below 0 reads the first row,
one beyond the last row reads the last. TVM's `take` in mode "clip" does the same; its mode "fast"
reads out of bounds there. Negative integers do not count from the end.
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
    """Gather `rows` rows from a tensor of `of` rows, by one integer of `dtype` for each.

    Integers may be in any order, and may repeat.
    """

    rows: int
    of: int
    dtype: IndexType

    @property
    def distinct(self) -> int:
        """The largest number of different rows that are read."""
        return min(self.rows, self.of)

    @property
    def bytes(self) -> int:
        """Bytes of the integers."""
        return self.rows * self.dtype.size_bytes

    def gather(self, a: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of `a`, (of, columns), at the integers `rows`: (rows, columns)."""
        made: NDArray[Any] = a.reshape(self.of, -1)[np.clip(rows.reshape(-1), 0, self.of - 1)]
        return made


def check_gathered(kind: str, of: int | None, dtype: IndexType | None) -> None:
    """Check the two fields of a problem that gathers rows.

    Raises:
        InvalidProblemError: only one of the two is given, or `of` is out of range.
    """
    if (of is None) != (dtype is None):
        raise InvalidProblemError(
            f"{kind}: a_rows={of} and rows_dtype={dtype}; give both to gather rows, or neither"
        )
    if of is not None and not 1 <= of <= _MOST_ROWS:
        raise InvalidProblemError(
            f"{kind}: a_rows={of} is out of range; extents are 1 to {_MOST_ROWS}"
        )
