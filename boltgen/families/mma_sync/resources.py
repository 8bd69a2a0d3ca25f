"""The resources of a configuration: shared memory and registers.

Shared memory follows from CUTLASS's headers; registers are estimated, because ptxas decides.
"""

from __future__ import annotations

import math

from boltgen.families.columns import least, most, where
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.resources import BOOKKEEPING_REGISTERS, MOST_REGISTERS
from boltgen.ir.dtypes import DType
from boltgen.problems.problem import Problem

_WARP = 32
_REGISTER_BYTES = 4
_ROW_PADDING_BYTES = 32
# Semaphores are padded to a cache line. Source: templates/include/boltgen/launch.h, SplitWorkspace.
_CACHE_LINE_BYTES = 128
# The registers that ptxas (nvcc 13.0) saves before it spills: 128x160x32 in warps of 64x80 would
# need 272 registers and gets by with 255; 256x64x64 in warps of 64x64 (280, sm_75) spills.
_SPARED_REGISTERS = 17
# For a copy of A of at most two elements; see `pixel_registers`.
_NARROW_ELEMENTS, _REGISTERS_PER_COPY = 2, 3


def main_loop_bytes(config: Tiles, in_dtype: DType) -> int:
    """Return the shared memory of the operand tiles of all stages, in bytes.

    Source: cutlass/gemm/threadblock/mma_base.h, SharedStorage (no padding for tensor-op layouts).
    """
    tile = config.threadblock
    return config.stages * (tile.m + tile.n) * tile.k * in_dtype.size_bytes


def epilogue_bytes(config: Tiles, acc_dtype: DType) -> int:
    """Return the bytes of shared memory in which the epilogue reorders accumulators.

    It reuses the operands' memory. It has eight rows of every warp row of the threadblock, once for
    each warp that shares a tile's K.
    Source: cutlass/epilogue/threadblock/epilogue_base.h, SharedStorage; padded rows as in
    templates/include/boltgen/epilogue_graph.h, StagingIterators.
    """
    tile, warp = config.threadblock, config.warp
    rows = 8 * (tile.m // warp.m) * (tile.k // warp.k)
    padding = _ROW_PADDING_BYTES // acc_dtype.size_bytes
    return rows * (tile.n + padding) * acc_dtype.size_bytes


def shared_memory_bytes(config: Tiles, in_dtype: DType, acc_dtype: DType) -> int:
    """Return the dynamic shared memory of a threadblock, in bytes."""
    taken: int = most(main_loop_bytes(config, in_dtype), epilogue_bytes(config, acc_dtype))
    return taken


def split_workspace_bytes(problem: Problem, config: Tiles) -> int:
    """Return the global memory for the partial sums of split-K, in bytes; 0 without it.

    It has a semaphore per tile of the output, then an FP32 tile for each. Source:
    templates/include/boltgen/launch.h, SplitWorkspace; a kernel's own query returns the same.
    """
    if config.split_k == 1:
        return 0
    gemm = problem.gemm.unpaired
    tile = config.threadblock
    tiles = math.ceil(gemm.m / tile.m) * math.ceil(gemm.n / tile.n)
    semaphores = math.ceil(tiles * 4 / _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
    return semaphores + tiles * tile.m * tile.n * DType.F32.size_bytes


def registers_per_thread(config: Tiles, in_dtype: DType, acc_dtype: DType) -> int:
    """Estimate the registers of a thread of a legal configuration."""
    wanted: int = least(MOST_REGISTERS, _wanted_registers(config, in_dtype, acc_dtype))
    return wanted


def least_registers_per_thread(config: Tiles, in_dtype: DType, acc_dtype: DType) -> int:
    """Estimate the least registers with which a thread does not spill."""
    return _wanted_registers(config, in_dtype, acc_dtype) - _SPARED_REGISTERS


def pixel_registers(config: Tiles, alignment_a: int) -> int:
    """Estimate the further registers of a convolution that copies A in narrow vectors.

    For each copy a thread keeps masks of rows and columns of the filter. CUTLASS also keeps them
    for whole vectors, but then copies are few. Fitted to ptxas's reports (nvcc 13.0) of twelve
    first layers with 3 and 6 channels.
    """
    if alignment_a > _NARROW_ELEMENTS:
        return 0
    tile = config.threadblock
    copies: int = tile.m * tile.k // (alignment_a * most(config.threads, 1))
    return _REGISTERS_PER_COPY * copies


def _wanted_registers(config: Tiles, in_dtype: DType, acc_dtype: DType) -> int:
    """Estimate registers: accumulators, operand fragments, bookkeeping.

    Fragments of A and B are double-buffered (cutlass/gemm/threadblock/mma_multistage.h); two-stage
    kernels also hold the next tiles from global memory (mma_pipelined.h).
    kernels also carry the next tiles from global memory (mma_pipelined.h).
    """
    warp, tile, size = config.warp, config.threadblock, in_dtype.size_bytes
    lane_bytes = _WARP * _REGISTER_BYTES
    accumulators = warp.m * warp.n * acc_dtype.size_bytes // lane_bytes
    fragments = 2 * (warp.m + warp.n) * config.instruction.k * size // lane_bytes
    staged = (tile.m + tile.n) * tile.k * size // (_REGISTER_BYTES * most(config.threads, 1))
    staged = where(config.stages == 2, staged, 0)
    registers: int = accumulators + fragments + staged + BOOKKEEPING_REGISTERS
    return registers
