"""Interleave the columns of two matrices: a run of the first, a run of the second, and so on.

Arrow: the frontend interleaves the weights of two matmuls, the oracle separates their results. A
thread of the epilogue holds both runs side by side and combines them into a run of D.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# With a run of the other matmul these are eight FP16 numbers, one vector, for which CUTLASS's
# iterators reorder accumulators fastest.
_MOST_COLUMNS = 4


def run_of(columns: int) -> int:
    """Return the columns of a run: a divisor of `columns` that is aligned in every type."""
    return math.gcd(_MOST_COLUMNS, columns)


def interleaved(first: NDArray[Any], second: NDArray[Any], run: int, axis: int) -> NDArray[Any]:
    """Interleave two arrays of one shape along `axis`, which counts the columns."""
    shape = list(first.shape)
    runs = (*shape[:axis], shape[axis] // run, run, *shape[axis + 1 :])
    shape[axis] *= 2
    both = np.stack([first.reshape(runs), second.reshape(runs)], axis=axis + 1)
    return np.ascontiguousarray(both.reshape(shape))


def halves(whole: NDArray[Any], run: int) -> NDArray[Any]:
    """Separate the two matrices (..., N) that are interleaved in (..., 2 N): (2, ..., N)."""
    *rows, columns = whole.shape
    runs = whole.reshape(*rows, columns // (2 * run), 2, run)
    return np.moveaxis(runs, -2, 0).reshape(2, *rows, columns // 2)
