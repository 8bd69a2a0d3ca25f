"""Slices of the rows of D. An epilogue may load one row for each slice.

    D[i, j] = f(product[i, j], row[i // rows of a slice, j])

Those of an image are its pixels, those of a sequence its tokens: so a diffusion model scales,
shifts and gates each image by numbers of its own. Arrow: loads and launches read this.
"""

from __future__ import annotations

from boltgen.ir.problem import Problem


def slices(problem: Problem) -> int:
    """The number of slices of D. The last one may be shorter. A problem without slices has 1."""
    rows = problem.slice_rows
    return -(-problem.matrix[0] // rows) if rows else 1
