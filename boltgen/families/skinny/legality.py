"""The rules of legal configurations for matmuls of few rows, and their resources."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.family import Footprint
from boltgen.families.rejections import MMA_SYNC_IN_F32, one_result_rejection, type_rejection
from boltgen.families.resources import (
    BOOKKEEPING_REGISTERS,
    INT32_MAX,
    MAX_GRID_YZ,
    capacity_violations,
    overflow_violations,
    value_violations,
)
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.space import Violation
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

ROWS, COLUMNS, WARPS, STEPS = (8, 16), (16, 32, 64), (2, 4, 8, 16), (1, 2, 4)
# All of B is read once per this many rows, so for more rows a kernel that keeps B on chip is
# better. No other kernel reads packed weights, so their matmuls may have any number of rows.
MOST_ROWS = 32

_HEADER = "templates/include/boltgen/skinny.h"
_REGISTER_BYTES = 4
# The padding of a threadblock's sums, besides the columns of a row; see SharedStorage.
_PADDING = 4


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one product, not {len(workload.layers)} layers back to back"
    layer = workload.single
    problem = layer.problem
    if not isinstance(problem, Gemm):
        return f"it computes matrix products, not a {type(problem).__name__}"
    if not layer.prologue.is_identity:
        return f"it multiplies A as it is, not {layer.prologue.describe()}"
    types = type_rejection(problem, arch, MMA_SYNC_IN_F32)
    return types or one_result_rejection(layer.epilogue)


def violations(problem: Gemm, config: SkinnyConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for `problem` on `arch`; empty if it is legal.

    Values for which no kernel exists are reported alone, because other rules need valid ones.
    """
    known = {"rows": ROWS, "columns": COLUMNS, "warps": WARPS, "steps": STEPS}
    reason = "an m16n8 instruction takes sixteen columns of B and eight rows of A; " + _HEADER
    structural = tuple(value_violations(config, known, name="whole_fragments", reason=reason))
    if structural:
        return structural
    taken = footprint(problem, config)
    return (
        *_extent_violations(problem, config),
        *capacity_violations(
            arch,
            shared_bytes=taken.shared_memory_bytes,
            registers=taken.registers,
            threads=config.threads,
            spilt="data on its way from memory",
        ),
    )


def _extent_violations(problem: Gemm, config: SkinnyConfig) -> Iterator[Violation]:
    if problem.weights is None and problem.m > MOST_ROWS:
        yield Violation(
            name="rows",
            message=f"M={problem.m} exceeds {MOST_ROWS}",
            reason=f"every {config.rows} rows read all of B again",
            slack=1.0 - problem.m / MOST_ROWS,
        )
    below = math.ceil(problem.m / config.rows)
    if max(below, problem.batch) > MAX_GRID_YZ:
        yield Violation(
            name="grid",
            message=f"M={problem.m} is {below} times {config.rows} rows, of {problem.batch} "
            f"products; a grid has {MAX_GRID_YZ}",
            reason="its y and z dimensions; CUDA C++ Programming Guide, compute capabilities",
            slack=1.0 - max(below, problem.batch) / MAX_GRID_YZ,
        )
    counted = {
        "K": (problem.k, INT32_MAX - config.round(problem)),
        "N": (problem.n, INT32_MAX - config.columns),
    }
    yield from overflow_violations(
        counted, "the last step is counted to its end in 32 bits; " + _HEADER
    )


def footprint(problem: Gemm, config: SkinnyConfig) -> Footprint:
    """Return shared memory for the sums of every warp; registers for sums and data in flight."""
    sums_bytes = config.rows * (config.columns + _PADDING) * DType.F32.size_bytes
    tiles, row_tiles = config.columns // 16, config.rows // 8
    lane_bytes = config.depth(problem) // 4 * problem.in_dtype.size_bytes
    of_a = of_column = lane_bytes // _REGISTER_BYTES
    if problem.weights is not None:
        # The packed numbers, a scale and a zero point.
        numbers = config.depth(problem) // 4 * problem.weights.bits // 8 // _REGISTER_BYTES
        of_column = numbers + 1 + int(problem.weights.has_zeros)
    staged = config.steps * (2 * tiles * of_column + row_tiles * of_a)
    # A vector occupies whole registers.
    narrowest = min(problem.alignment_a, problem.alignment_b) * problem.in_dtype.size_bytes
    staged *= max(1, _REGISTER_BYTES // narrowest)
    return Footprint(
        registers=4 * tiles * row_tiles + staged + BOOKKEEPING_REGISTERS,
        shared_memory_bytes=config.warps * sums_bytes,
        warps=config.warps,
    )


def is_sensible(problem: Gemm, config: SkinnyConfig) -> bool:
    """Return whether no warp or row of fragments idles that a smaller configuration would avoid."""
    rows = next((rows for rows in ROWS if rows >= problem.m), ROWS[-1])
    columns_fit = config.columns == COLUMNS[0] or config.columns < 2 * problem.n
    depth_fits = config.round(problem) < 2 * problem.k
    is_least = (config.warps, config.steps) == (WARPS[0], STEPS[0])
    return config.rows == rows and columns_fit and (depth_fits or is_least)


def blocks(problem: Gemm, config: SkinnyConfig) -> int:
    """Return the threadblocks of a launch."""
    below, beside = math.ceil(problem.m / config.rows), math.ceil(problem.n / config.columns)
    return problem.batch * below * beside


def vector_bytes_of_b(problem: Gemm, config: SkinnyConfig) -> int:
    """Return the bytes of B that a lane loads at once."""
    if problem.weights is not None:
        return config.depth(problem) // 4 * problem.weights.bits // 8
    run = config.columns // 8 if problem.b_layout is Layout.ROW else 8
    return min(problem.alignment_b, run) * problem.in_dtype.size_bytes
