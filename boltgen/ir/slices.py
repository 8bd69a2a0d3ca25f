"""Slices of a problem's rows, for each of which an epilogue may have a row of its own.

    D[i, j] = f(product[i, j], row[i // rows of a slice, j])

Those of an image are its pixels, those of a sequence its tokens: so a diffusion model scales,
shifts and gates each image by numbers of its own. Arrow: loads and launches read this.
"""

from __future__ import annotations

from boltgen.ir.problem import Problem


def slices(problem: Problem) -> int:
    """How many slices the rows of D are, the last of which may be shorter; 1 where in none."""
    rows = problem.slice_rows
    return -(-problem.matrix[0] // rows) if rows else 1
