"""Predict the time of an sm_90a kernel, like `mma_sync.model` for older architectures.

Threadblocks are persistent: each multiprocessor runs one, which takes one tile after the other, or,
by stream-K, an equal share of the steps of the tiles that do not fill a wave.

    time = launch + pipeline + max(busiest multiprocessor, L2 bytes, DRAM bytes) / sustained
           + a share of the other two + sums of split tiles
    tile = k steps * max(tensor cores, shared memory, L2) and the epilogue

In pingpong the epilogue overlaps the other warpgroup's matmul; cooperative warpgroups wait for it.
Clusters share loaded operands. Figures of the hardware come from `boltgen.arch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.cutlass3.config import Cutlass3Config, Raster, Schedule, Scheduler
from boltgen.families.cutlass3.legality import STREAM_K_STEPS, blocks_at_once, whole_tiles
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    SHARED_BYTES_PER_CLOCK,
    arithmetic_clocks,
    lanes,
    of_element,
    output_bytes_per_element,
)
from boltgen.families.wgmma import WARPGROUP, depth_of_wgmma, steps
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.problem import Problem

# Source: NVIDIA, CUDA C++ Best Practices Guide.
_SECTOR_BYTES = 32
# The rows of A that one wgmma multiplies. Source: PTX ISA, wgmma.
_INSTRUCTION_M = 64
# The multiplying warpgroups, in both schedules.
_MULTIPLYING = 2


def predict(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Cutlass3Config,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the predicted time of `problem` with `epilogue` in a legal `config`."""
    c = constants or model_constants(arch)
    tile, in_bytes, gemm = config.threadblock, problem.in_dtype.size_bytes, problem.gemm
    rows = whole_tiles(gemm.m, tile.m, config.swizzle * config.cluster_m)
    columns = whole_tiles(gemm.n, tile.n, config.swizzle * config.cluster_n)
    depth = steps(problem, tile.k)
    at_once = blocks_at_once(config, arch)
    tiles = problem.batch * rows * columns
    work = _busiest(config, tiles, depth, at_once)

    # Threadblocks along N share A; threadblocks along M share B.
    loaded = (tile.m / config.cluster_n + tile.n / config.cluster_m) * tile.k * in_bytes
    step, bound_by = _step_clocks(config, problem.in_dtype, loaded, arch, c)
    product = depth * step
    through_l2 = output_bytes_per_element(problem, epilogue) + _bytes_of_half_sectors(epilogue)
    stored = tile.m * tile.n * through_l2
    after = stored / (arch.l2_bytes_per_clock / arch.sm_count) + arithmetic_clocks(
        epilogue, tile.m * tile.n, arch, c
    )
    first = arch.memory_latency_clocks
    if config.schedule is Schedule.PINGPONG:
        clocks = first + work.tiles * max(product, after) + min(product, after)
    else:
        clocks = first + work.steps * step + work.tiles * after
    if after > product:
        bound_by = "its epilogue"

    outputs = problem.batch * gemm.m * gemm.n
    out_bytes = outputs * output_bytes_per_element(problem, epilogue)
    l2_bytes = tiles * depth * loaded + outputs * through_l2
    l2_us = l2_bytes / (c.tma_factor * arch.l2_bytes_per_clock * arch.boost_mhz)
    # For a convolution the pixels count once: filter taps find them in L2.
    one = gemm if problem.is_matrix else problem
    operands = problem.batch * _dram_bytes(
        one, config, arch, c, rows=rows, columns=columns, at_once=at_once
    )
    dram_us = (operands + out_bytes) / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    limits = (clocks / arch.boost_mhz, bound_by), (l2_us, "L2"), (dram_us, "DRAM")
    slowest_us, bound_by = max(limits)
    slowest_us += c.unhidden_fraction * (sum(time_us for time_us, _ in limits) - slowest_us)
    begin_us, slowest_us = c.launch_us + c.pipeline_us, slowest_us / c.sustained_fraction
    if slowest_us < begin_us:
        bound_by = "its launch"
    sums_us = work.turns * (c.handover_us + _sums_us(config, arch) / c.sustained_fraction)
    if work.turns:
        sums_us += c.launch_us  # writes the counters' initial zeros
    # Memory for sums of rows or columns is cleared first, with a launch each.
    begin_us += len(epilogue.reductions) * c.launch_us
    return Prediction(
        time_us=begin_us + slowest_us + sums_us,
        bound_by=bound_by,
        details=f"at most {work.tiles} tiles on an SM",
        figures={"tiles_per_sm": work.tiles},
    )


def _bytes_of_half_sectors(epilogue: ElementwiseGraph) -> int:
    """Return the excess bytes in L2 per element of results besides D.

    A warp stores them from registers: eight neighbouring elements of each of eight rows. Elements
    of 2 bytes fill only half of a sector.
    """
    tensors = (dtype for store, dtype in epilogue.further if not store.reduction)
    return sum(_SECTOR_BYTES // 8 - dtype.size_bytes for dtype in tensors)


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of the busiest threadblock: steps of K, and completed tiles.

    `turns` counts the threadblocks that add to the sums of one tile, one after the other.
    """

    steps: int
    tiles: int
    turns: int


def _busiest(config: Cutlass3Config, tiles: int, depth: int, at_once: int) -> _Work:
    """Return the work of the busiest threadblock.

    Source: cutlass/gemm/kernel/tile_scheduler_params.h, get_num_sk_tiles and get_num_sk_units.
    """
    waves = math.ceil(tiles / at_once)
    if config.split_k > 1:
        rounds = math.ceil(tiles * config.split_k / at_once)
        return _Work(rounds * math.ceil(depth / config.split_k), rounds, config.split_k - 1)
    whole = tiles // at_once
    if config.scheduler is Scheduler.PERSISTENT or waves == whole:
        return _Work(waves * depth, waves, 0)
    # The tiles of a partial last wave, and of the wave before it, are divided into equal parts.
    before = max(0, whole - 1)
    divided = tiles - before * at_once
    parts = max(1, min(at_once, divided * depth // STREAM_K_STEPS))
    # A part may begin and end within tiles.
    peers = math.ceil(parts / divided) + 1
    return _Work(
        before * depth + math.ceil(divided * depth / parts),
        before + math.ceil(divided / parts),
        peers - 1,
    )


def _sums_us(config: Cutlass3Config, arch: Arch) -> float:
    """Return the time of a multiprocessor to write and read the sums of a tile through L2."""
    tile = config.threadblock
    sums_bytes = 2 * tile.m * tile.n * DType.F32.size_bytes
    return sums_bytes / (arch.l2_bytes_per_clock / arch.sm_count) / arch.boost_mhz


def _step_clocks(
    config: Cutlass3Config, in_dtype: DType, loaded_bytes: float, arch: Arch, c: ModelConstants
) -> tuple[float, str]:
    """Return the clocks of a step of K, and the resource that limits it.

    Every wgmma reads its 64 rows of A and all of B from shared memory. Of 8-bit floats a step's
    sums are added in FP32: one of two cooperating warpgroups multiplies meanwhile, and in pingpong
    none does.
    """
    tile, in_bytes = config.threadblock, in_dtype.size_bytes
    rate = arch.narrow_rate if in_bytes == 1 else 1.0
    flop_per_clock = rate * arch.tensor_f32_acc_tflops * 1e6 / arch.boost_mhz / arch.sm_count
    tensor = 2 * tile.m * tile.n * tile.k / flop_per_clock
    added = tile.m * tile.n / lanes(arch) if in_dtype.is_narrow else 0.0
    if config.schedule is Schedule.PINGPONG:
        tensor += added
    instructions = tile.m // _INSTRUCTION_M
    read = instructions * (_INSTRUCTION_M + tile.n) * tile.k * in_bytes
    written = (tile.m + tile.n) * tile.k * in_bytes
    return max(
        (tensor, "the tensor cores"),
        (added, "additions in FP32"),
        ((read + written) / SHARED_BYTES_PER_CLOCK, "shared memory"),
        (loaded_bytes / (c.tma_factor * arch.l2_bytes_per_clock / arch.sm_count), "L2"),
    )


def _dram_bytes(
    problem: Problem,
    config: Cutlass3Config,
    arch: Arch,
    c: ModelConstants,
    *,
    rows: int,
    columns: int,
    at_once: int,
) -> float:
    """Return the bytes of A and B from DRAM: each once, and again if L2 has lost them.

    Tiles follow each other along the raster, in bands of `swizzle` clusters: along M a band has all
    of A and few columns of B. A wave is a part of a band, or several bands.
    """
    along_m = config.raster is Raster.ALONG_M
    length, width = (rows, columns) if along_m else (columns, rows)
    side = min(width, config.swizzle * (config.cluster_n if along_m else config.cluster_m))
    bands = max(1, min(math.ceil(width / side), at_once // (side * length)))
    a, b = problem.a_bytes, problem.b_bytes
    whole, banded = (a, b) if along_m else (b, a)
    passes_over_whole = math.ceil(width / (side * bands))
    passes_over_band = math.ceil(length / min(length, math.ceil(at_once / side)))
    kept = c.l2_kept_fraction * arch.l2_bytes
    return whole * (1 + (passes_over_whole - 1) * _missed(whole, kept)) + banded * (
        1 + (passes_over_band - 1) * _missed(banded * side / width, kept)
    )


def _missed(wanted_bytes: float, kept_bytes: float) -> float:
    """Return the share of an operand that L2 has lost when it is read again."""
    return max(0.0, 1.0 - kept_bytes / wanted_bytes)


def instructions(
    problem: Problem, epilogue: ElementwiseGraph, config: Cutlass3Config, arch: Arch
) -> Instructions:
    """Return the instructions of a launch: two warpgroups share a tile, or take tiles in turn.

    Per step TMA loads a part of A and a part of B; the other parts come from the cluster.
    """
    tile, gemm = config.threadblock, problem.gemm
    rows = whole_tiles(gemm.m, tile.m, config.swizzle * config.cluster_m)
    columns = whole_tiles(gemm.n, tile.n, config.swizzle * config.cluster_n)
    tiles = problem.batch * rows * columns
    useful = problem.batch * math.ceil(gemm.m / tile.m) * math.ceil(gemm.n / tile.n)
    at_once = blocks_at_once(config, arch)
    work = _busiest(config, tiles, steps(problem, tile.k), at_once)
    parts = tiles * (1 + work.turns)
    loaded = (tile.m / config.cluster_n + tile.n / config.cluster_m) * tile.k
    outputs = work.tiles * tile.m * tile.n / (_MULTIPLYING * WARPGROUP)
    of_tile = tile.m // _INSTRUCTION_M * tile.k // depth_of_wgmma(problem.in_dtype)
    return Instructions(
        threadblocks=min(at_once, parts),
        idle=1.0 - useful / tiles,
        steps=work.steps,
        products=work.steps * of_tile / _MULTIPLYING,
        shared_loads=0.0,
        copies=2 * work.steps,
        copy_bytes=loaded * problem.in_dtype.size_bytes / 2,
        outputs=outputs,
        arithmetic=outputs * of_element(epilogue),
    )
