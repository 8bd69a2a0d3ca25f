"""Slices of a problem's rows, for each of which an epilogue may have a row of its own.

    D[i, j] = f(product[i, j], row[i // rows of a slice, j])

Those of an image are its pixels, those of a sequence its tokens: so a diffusion model scales,
shifts and gates each image by numbers of its own. Arrow: `workload`, loads and launches read this.
"""

from __future__ import annotations

from boltgen.ir.problem import Conv2d, Gemm, GroupNorm, Norm, Problem


def rows_of_slice(problem: Problem) -> int:
    """How many neighbouring rows of D are a slice; 0 of a problem whose rows are in none."""
    match problem:
        case Gemm() | Norm():
            return problem.slice_rows
        case Conv2d():
            return problem.p * problem.q
        case GroupNorm():
            return problem.pixels
        case _:
            return 0


def slices(problem: Problem) -> int:
    """How many slices the rows of D are, the last of which may be shorter; 1 where in none."""
    rows = rows_of_slice(problem)
    return -(-problem.matrix[0] // rows) if rows else 1
