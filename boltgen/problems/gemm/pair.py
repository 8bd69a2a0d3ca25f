"""Columns of two matrices in one: runs of the first and of the second by turns.

Arrow: the frontend joins the weights of two products so, the oracle takes their results apart. One
thread of an epilogue has a run of each, side by side, and makes a run of D of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# With as many of the other product they are the eight of a vector of FP16, in which CUTLASS's
# iterators reorder accumulators fastest.
_MOST_COLUMNS = 4


def run_of(columns: int) -> int:
    """Return the columns of a run: they divide `columns`, and are aligned in every type."""
    return math.gcd(_MOST_COLUMNS, columns)


def interleaved(first: NDArray[Any], second: NDArray[Any], run: int, axis: int) -> NDArray[Any]:
    """Interleave two arrays of one shape; `axis` counts the columns."""
    shape = list(first.shape)
    runs = (*shape[:axis], shape[axis] // run, run, *shape[axis + 1 :])
    shape[axis] *= 2
    both = np.stack([first.reshape(runs), second.reshape(runs)], axis=axis + 1)
    return np.ascontiguousarray(both.reshape(shape))


def halves(whole: NDArray[Any], run: int) -> NDArray[Any]:
    """The two matrices (..., N) of (..., 2 N), one behind the other: (2, ..., N)."""
    *rows, columns = whole.shape
    runs = whole.reshape(*rows, columns // (2 * run), 2, run)
    return np.moveaxis(runs, -2, 0).reshape(2, *rows, columns // 2)
