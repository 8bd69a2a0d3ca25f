"""The instructions of a threadblock of the CUTLASS 2.x API, and the grid with its swizzle."""

from __future__ import annotations

import math

from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traffic import operand_bytes_per_step, tiling
from boltgen.families.roofline import LDMATRIX_BYTES, of_element
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.problem import Problem


def instructions(problem: Problem, epilogue: ElementwiseGraph, config: Tiles) -> Instructions:
    """Return the instructions of a launch of one layer."""
    tiles = tiling(problem, config)
    columns = columns_launched(config.swizzle, tiles.columns)
    tile = config.threadblock
    outputs = tile.m * tile.n / config.threads / (2 if epilogue.is_paired else 1)
    copy_bytes = min(problem.alignment_a, problem.alignment_b) * problem.in_dtype.size_bytes
    return Instructions(
        threadblocks=tiles.blocks // tiles.columns * columns,
        idle=1.0 - tiles.columns / columns,
        steps=tiles.steps,
        products=tiles.steps * products_of_step(config),
        shared_loads=tiles.steps * shared_loads_of_step(config, problem.in_dtype),
        copies=tiles.steps
        * operand_bytes_per_step(config, problem.in_dtype)
        / (config.threads * copy_bytes),
        copy_bytes=copy_bytes,
        outputs=outputs,
        arithmetic=outputs * of_element(epilogue),
    )


def columns_launched(swizzle: int, columns: int) -> int:
    """Return the columns of threadblocks in the grid, which consists of whole groups of a swizzle.

    Source: cutlass/gemm/threadblock/threadblock_swizzle.h, get_log_tile and get_grid_shape.
    """
    most = 8 if columns >= 6 else 4 if columns >= 3 else 2 if columns == 2 else 1
    group = min(swizzle, most)
    return math.ceil(columns / group) * group


def products_of_step(config: Tiles) -> int:
    """Return the tensor-core instructions that a warp issues per step of K."""
    warp, one = config.warp, config.instruction
    return (warp.m // one.m) * (warp.n // one.n) * (warp.k // one.k)


def shared_loads_of_step(config: Tiles, in_dtype: DType, *, loads_a: bool = True) -> float:
    """Return a warp's ldmatrix instructions per step of K; A may be in registers."""
    warp = config.warp
    extents = warp.n + (warp.m if loads_a else 0)
    return extents * warp.k * in_dtype.size_bytes / LDMATRIX_BYTES
