"""The compiled part of a recurrent layer's workload."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer

# Hidden units that a kernel has, at least: a block along K.
BLOCK = 32
# Elements of a row of weights that a lane reads at once.
WHOLE_VECTOR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentTraits:
    """Cell, types, hidden units up to whole blocks, elements per vector access, and the graph
    after.

    With `whole_vectors`, the rows of the weights are whole vectors of eight.
    """

    cell: Cell
    in_dtype: DType
    out_dtype: DType
    hidden: int
    vector: int
    whole_vectors: bool
    epilogue: ElementwiseGraph


def recurrent_of(layer: Layer) -> Recurrent:
    """The problem of a layer that the family does not reject."""
    problem = layer.problem
    assert isinstance(problem, Recurrent)
    return problem


def units_of(problem: Recurrent) -> int:
    """Hidden units of a kernel: whole blocks."""
    return -(-problem.hidden // BLOCK) * BLOCK


def compiled_traits(layer: Layer) -> RecurrentTraits:
    """Return the compiled part of a layer."""
    problem = recurrent_of(layer)
    return RecurrentTraits(
        cell=problem.cell,
        in_dtype=problem.in_dtype,
        out_dtype=problem.out_dtype,
        hidden=units_of(problem),
        vector=2 if problem.hidden % 2 == 0 else 1,
        whole_vectors=problem.hidden % WHOLE_VECTOR == 0,
        epilogue=layer.epilogue,
    )
