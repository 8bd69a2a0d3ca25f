"""The resources of an attention kernel: shared memory, and estimated registers."""

from __future__ import annotations

import math

from boltgen.families.attention.config import AttentionConfig
from boltgen.families.chain.traffic import swizzled_tile_bytes
from boltgen.families.resources import BOOKKEEPING_REGISTERS
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.workload import Workload

_REGISTER_BYTES = 4
_WARP = 32
_CACHE_LINE_BYTES = 128
# Per row of a lane: the greatest score, and the sum.
_STATISTICS_PER_ROW = 2
# A lane has two of sixteen rows.
ROWS_PER_LANE = 16 // 2
# A thread with so many accumulators and elements of Q has enough registers left for the rest.
_MOST_HELD = 128


def stage_bytes(workload: Workload, config: AttentionConfig) -> int:
    """Return the bytes of the tiles of K and V of one step."""
    dtype = workload.first.problem.in_dtype
    k, v = (layer.problem.gemm for layer in workload.layers)
    tiles = ((config.depth, config.keys, k.b_layout), (config.keys, config.columns, v.b_layout))
    return sum(
        swizzled_tile_bytes(*((rows, columns) if layout is Layout.ROW else (columns, rows)), dtype)
        for rows, columns, layout in tiles
    )


def shared_memory_bytes(workload: Workload, config: AttentionConfig) -> int:
    """Return the dynamic shared memory of a threadblock, in bytes.

    Source: templates/include/boltgen/attention.h, SharedStorage.
    """
    queries = swizzled_tile_bytes(config.rows, config.depth, workload.first.problem.in_dtype)
    return queries + config.stages * stage_bytes(workload, config)


def holds_queries(config: AttentionConfig, *, is_async: bool) -> bool:
    """Whether a warp keeps its rows of Q in registers: it reads them once, and not in every step.

    Without asynchronous copies these registers are taken by what is on its way.
    """
    return is_async and _accumulators(config) + _queries(config) <= _MOST_HELD


def _accumulators(config: AttentionConfig) -> int:
    return config.warp_rows * (config.warp_keys + config.columns) // _WARP


def _queries(config: AttentionConfig) -> int:
    """Registers of a thread for the warp's rows of Q: two elements each."""
    return config.warp_rows * config.depth // (2 * _WARP)


def registers_per_thread(workload: Workload, config: AttentionConfig, *, is_async: bool) -> int:
    """Estimate the registers of a thread: scores, sums, a row's statistics, and fragments.

    Without asynchronous copies, data on its way to shared memory takes registers, too.
    """
    rows = config.warp_rows
    # A of sixteen rows by sixteen is 4 registers, and so are 16 columns of B.
    fragments = rows // 16 * 4 + 4
    if holds_queries(config, is_async=is_async):
        fragments += _queries(config)
    statistics = _STATISTICS_PER_ROW * rows // ROWS_PER_LANE
    staged = 0
    if not is_async:
        narrowest = min(layer.problem.alignment_b for layer in workload.layers)
        # A vector occupies whole registers.
        vector_bytes = narrowest * workload.first.problem.in_dtype.size_bytes
        wasted = max(1, _REGISTER_BYTES // vector_bytes)
        staged = wasted * stage_bytes(workload, config) // (_REGISTER_BYTES * config.threads)
    return _accumulators(config) + fragments + statistics + staged + BOOKKEEPING_REGISTERS


def merged_bytes(config: AttentionConfig) -> int:
    """Return the shared memory in which warps of the same rows add their sums, 0 where none do.

    Source: templates/include/boltgen/attention_split.h, WarpPairs.
    """
    of_lane = config.warp_rows // ROWS_PER_LANE * (_STATISTICS_PER_ROW + config.columns // 4)
    others = config.threads - config.threads // config.key_warps
    return others * of_lane * DType.F32.size_bytes


def split_workspace_bytes(workload: Workload, config: AttentionConfig) -> int:
    """Return the global memory for the partial results of split keys, in bytes; 0 without splits.

    It has a counter per tile of rows; then, per threadblock, its sums, and the greatest score and
    sum of each row of a lane. Source: templates/include/boltgen/attention_split.h; a kernel's own
    workspace query returns the same.
    """
    if config.splits == 1:
        return 0
    tiles = math.ceil(workload.first.problem.gemm.m / config.rows) * workload.batch
    counts = math.ceil(tiles * 4 / _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
    rows = config.warp_rows // ROWS_PER_LANE
    # A lane has two of eight columns.
    of_lane = rows * (_STATISTICS_PER_ROW + config.columns // 4)
    return counts + tiles * config.splits * config.threads * of_lane * DType.F32.size_bytes
