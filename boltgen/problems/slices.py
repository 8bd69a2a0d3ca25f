"""Slices of the rows of D. An epilogue may load one row for each slice, or for each position in it.

    D[i, j] = f(product[i, j], row[i // rows of a slice, j], position[i % rows of a slice, j])

The rows of an image are its pixels, the rows of a sequence its tokens: so a diffusion model scales,
shifts and gates each image by numbers of its own, and a transformer adds positions to its tokens.
Arrow: loads and launches read this.
"""

from __future__ import annotations

from boltgen.errors import assert_never
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.problem import Problem


def slices(problem: Problem) -> int:
    """The number of slices of D. The last one may be shorter. A problem without slices has 1."""
    rows = problem.slice_rows
    return -(-problem.matrix[0] // rows) if rows else 1


def loaded_shape(problem: Problem, kind: LoadKind, columns: int) -> tuple[int, int]:
    """Rows and columns of an operand of one product whose rows span so many `columns`; a column's
    may be in parts.
    """
    rows = problem.matrix[0]
    match kind:
        case LoadKind.TENSOR:
            return rows, columns
        case LoadKind.ROW:
            return 1, columns
        case LoadKind.SLICE_ROW:
            return slices(problem), columns
        case LoadKind.POSITION_ROW:
            return problem.slice_rows, columns
        case LoadKind.COLUMN:
            return rows, 1
        case _:
            assert_never(kind)
