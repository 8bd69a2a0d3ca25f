"""Slices of D's rows. An epilogue may load one row per slice, or one per position in a slice.

    D[i, j] = f(product[i, j], row[i // rows of a slice, j], position[i % rows of a slice, j])

A slice is the pixels of an image, or the tokens of a sequence. A diffusion model scales, shifts and
gates each image by its own row; a transformer adds a row for each position. Arrow: loads and
launches read this.
"""

from __future__ import annotations

from boltgen.errors import assert_never
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.problem import Problem


def slices(problem: Problem) -> int:
    """Return the number of slices of D, of which the last may be shorter; 1 without slices."""
    rows = problem.slice_rows
    return -(-problem.matrix[0] // rows) if rows else 1


def loaded_shape(problem: Problem, kind: LoadKind, columns: int) -> tuple[int, int]:
    """Return rows and columns of an operand of one matmul whose rows have `columns` elements; a
    COLUMN operand counts as one column, even in parts.
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
