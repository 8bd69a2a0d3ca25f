"""The inputs of a layer as arrays, for the oracles of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from boltgen.problems.problem import Problem, gathered
from boltgen.problems.reference import (
    AnyArray,
    shaped,
)


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """B of a layer, empty if it has none, and the operands of its prologue and epilogue.

    `ends` belong to a grouped matmul, `rows` are the integers of a gather; both are empty for other
    problems. `further` are the problem's further inputs, in order.

    `operands` (of the epilogue) have the shapes that `reference.run` takes. The shapes of
    `prologue` refer to A instead of D: TENSOR as A, ROW (K,), COLUMN (M,).
    """

    b: AnyArray = field(default_factory=lambda: np.zeros(0))
    operands: tuple[AnyArray, ...] = ()
    prologue: tuple[AnyArray, ...] = ()
    ends: AnyArray = field(default_factory=lambda: np.zeros(0))
    rows: AnyArray = field(default_factory=lambda: np.zeros(0))
    further: tuple[AnyArray, ...] = ()


def rows_of(problem: Problem, a: AnyArray, inputs: LayerInputs) -> AnyArray:
    """Return A's rows in the order in which the kernel computes them."""
    how = gathered(problem)
    if how is None:
        return a.reshape(problem.a_shape)
    shaped("rows", inputs.rows, ((how.rows,),), how.dtype, is_matrix=False)
    return how.gather(a, inputs.rows)


def in_rows(array: AnyArray, count: int) -> AnyArray:
    """Return a column as it is, and a tensor as a matrix of `count` rows."""
    return array if array.ndim == 1 else array.reshape(count, -1)
