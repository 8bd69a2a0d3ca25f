"""Predicts the time of an sm_90a kernel, as `cutlass2.model` does of the older ones.

Threadblocks are persistent: each multiprocessor runs one, which goes from tile to tile.

    time = launch + pipeline + max(busiest multiprocessor, L2 bytes, DRAM bytes) / sustained
    tile = k steps * max(tensor cores, shared memory, L2) and the epilogue

In pingpong the epilogue hides behind the other warpgroup's product; cooperating warpgroups wait for
it. Clusters share what they load. Figures of the hardware come from `boltgen.arch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.cutlass2.model import arithmetic_clocks
from boltgen.families.cutlass2.traffic import output_bytes_per_element
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Conv2d, Problem

# Source: CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes each clock.
_SHARED_BYTES_PER_CLOCK = 128
# Rows of A that one wgmma multiplies. Source: PTX ISA, wgmma.
_INSTRUCTION_M = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutlass3Prediction:
    """What the model says of one launch; `bound_by` is what the time is mostly made of."""

    time_us: float
    bound_by: str
    tiles_per_sm: int

    @property
    def bound(self) -> str:
        """Say in a line what the time is mostly made of."""
        return f"bound by {self.bound_by}: at most {self.tiles_per_sm} tiles on an SM"


def predict(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Cutlass3Config,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Cutlass3Prediction:
    """The predicted time of `problem` with `epilogue` in a legal `config`."""
    c = constants or model_constants()
    tile, in_bytes, gemm = config.threadblock, problem.in_dtype.size_bytes, problem.gemm
    rows = _whole(gemm.m, tile.m, config.cluster_m)
    columns = _whole(gemm.n, tile.n, config.cluster_n)
    steps = k_steps(problem, tile.k)
    cluster = config.cluster_m * config.cluster_n
    at_once = arch.sm_count // cluster * cluster
    tiles = problem.batch * rows * columns
    per_sm = math.ceil(tiles / at_once)

    # Threadblocks side by side share A, those below each other B.
    loaded = (tile.m / config.cluster_n + tile.n / config.cluster_m) * tile.k * in_bytes
    step, bound_by = _step_clocks(config, loaded, in_bytes, arch)
    product = steps * step
    stored = tile.m * tile.n * output_bytes_per_element(problem, epilogue)
    after = stored / (arch.l2_bytes_per_clock / arch.sm_count) + arithmetic_clocks(
        epilogue, tile.m * tile.n, arch, c
    )
    first = arch.memory_latency_clocks
    if config.schedule is Schedule.PINGPONG:
        clocks = first + per_sm * max(product, after) + min(product, after)
    else:
        clocks = first + per_sm * (product + after)
    if after > product:
        bound_by = "its epilogue"

    outputs = problem.batch * gemm.m * gemm.n
    out_bytes = outputs * output_bytes_per_element(problem, epilogue)
    l2_bytes = tiles * steps * loaded + out_bytes
    l2_us = l2_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz)
    # Of a convolution the pixels themselves: taps meet them again in L2.
    one = gemm if problem.is_matrix else problem
    operands = problem.batch * _dram_bytes(
        one, config, arch, c, rows=rows, columns=columns, at_once=at_once
    )
    dram_us = (operands + out_bytes) / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    slowest_us, bound_by = max(
        (clocks / arch.boost_mhz, bound_by), (l2_us, "L2"), (dram_us, "DRAM")
    )
    begin_us, slowest_us = c.launch_us + c.pipeline_us, slowest_us / c.sustained_fraction
    if slowest_us < begin_us:
        bound_by = "its launch"
    return Cutlass3Prediction(time_us=begin_us + slowest_us, bound_by=bound_by, tiles_per_sm=per_sm)


def k_steps(problem: Problem, depth: int) -> int:
    """Steps of K: of a convolution, whole ones of channels for each tap of the filter."""
    if isinstance(problem, Conv2d):
        return problem.r * problem.s * math.ceil(problem.c / depth)
    return math.ceil(problem.gemm.k / depth)


def _whole(extent: int, tile: int, cluster: int) -> int:
    """Tiles along an extent: whole clusters of them."""
    return math.ceil(extent / (tile * cluster)) * cluster


def _step_clocks(
    config: Cutlass3Config, loaded_bytes: float, in_bytes: int, arch: Arch
) -> tuple[float, str]:
    """Clocks of a step of K, and what bounds it.

    Every wgmma reads its 64 rows of A and all of B from shared memory.
    """
    tile = config.threadblock
    flop_per_clock = arch.tensor_f32_acc_tflops * 1e6 / arch.boost_mhz / arch.sm_count
    tensor = 2 * tile.m * tile.n * tile.k / flop_per_clock
    instructions = tile.m // _INSTRUCTION_M
    read = instructions * (_INSTRUCTION_M + tile.n) * tile.k * in_bytes
    written = (tile.m + tile.n) * tile.k * in_bytes
    return max(
        (tensor, "the tensor cores"),
        ((read + written) / _SHARED_BYTES_PER_CLOCK, "shared memory"),
        (loaded_bytes / (arch.l2_bytes_per_clock / arch.sm_count), "L2"),
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
    """Bytes of A and B from DRAM: each once, and again for every wave that L2 has lost them by.

    A wave is a block of tiles, `swizzle` clusters wide along the shorter side of the problem, which
    is how CUTLASS's scheduler orders them.
    """
    side = config.swizzle * (config.cluster_n if columns <= rows else config.cluster_m)
    short, long = min(rows, columns), max(rows, columns)
    side = min(side, short)
    reach = min(long, math.ceil(at_once / side))
    # Where a wave goes around the long side it covers several strips of the short one.
    strips = max(1, min(math.ceil(short / side), at_once // (side * long)))
    passes_over_long = math.ceil(short / (side * strips))
    passes_over_short = math.ceil(long / reach)
    a, b = problem.a_bytes, problem.b_bytes
    of_long, of_short = (a, b) if rows >= columns else (b, a)
    kept = c.l2_kept_fraction * arch.l2_bytes
    return of_long * (1 + (passes_over_long - 1) * _missed(of_long, kept)) + of_short * (
        1 + (passes_over_short - 1) * _missed(of_short * side / short, kept)
    )


def _missed(wanted_bytes: float, kept_bytes: float) -> float:
    """The share of an operand that L2 has lost when it is read again."""
    return max(0.0, 1.0 - kept_bytes / wanted_bytes)
