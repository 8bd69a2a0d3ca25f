"""The inputs of a layer as arrays, which the oracles of all kinds take."""

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
    """A layer's B, empty where it has none, and the operands of its graphs.

    `ends` are those of a product of rows in groups, `rows` the integers that take A's rows, where
    some do; of others they are empty. `further` are the further inputs of a problem, in order.

    Those of its epilogue are shaped as `reference.run` takes them, those of its prologue against A
    in the same way: TENSOR as A, ROW (K,), COLUMN (M,).
    """

    b: AnyArray = field(default_factory=lambda: np.zeros(0))
    operands: tuple[AnyArray, ...] = ()
    prologue: tuple[AnyArray, ...] = ()
    ends: AnyArray = field(default_factory=lambda: np.zeros(0))
    rows: AnyArray = field(default_factory=lambda: np.zeros(0))
    further: tuple[AnyArray, ...] = ()


def rows_of(problem: Problem, a: AnyArray, inputs: LayerInputs) -> AnyArray:
    """A's rows in the order in which they are computed."""
    how = gathered(problem)
    if how is None:
        return a.reshape(problem.a_shape)
    shaped("rows", inputs.rows, ((how.rows,),), how.dtype, is_matrix=False)
    return how.taken(a, inputs.rows)


def in_rows(array: AnyArray, count: int) -> AnyArray:
    """A column, or the rows of a full tensor, which may be counted in several dimensions."""
    return array if array.ndim == 1 else array.reshape(count, -1)
