"""Predict the time of a depthwise separable convolution.

A and B go over DRAM's bus once, what lies between the layers never. A threadblock reads the pixels
that its own meet from L2, and each thread the pixels of its tile from L1. For each step its threads
compute channels without tensor cores, then its warps multiply them; other threadblocks of the SM
fill the gaps.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.depthwise_tile import depthwise_of, vector_of_a
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.instructions import products_of_step, shared_loads_of_step
from boltgen.families.mma_sync.model import epilogue_clocks, step_clocks
from boltgen.families.roofline import (
    SCHEDULERS,
    SHARED_BYTES_PER_CLOCK,
    bytes_per_clock,
    fitting_threadblocks,
    lanes,
    of_element,
)
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.separable.legality import blocks, footprint, tasks, tile_of
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload

_WARP = 32


def predict(
    workload: Workload,
    config: SeparableConfig,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the predicted time of `workload` in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    taken = footprint(workload, config)
    resident = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    count = blocks(workload, config)
    full, rest = divmod(count, arch.sm_count * resident)
    clocks = full * _clocks(workload, config, arch, c, resident)
    if rest:
        clocks += _clocks(workload, config, arch, c, -(-rest // arch.sm_count))
    written_bytes = outputs_bytes(workload)
    l2_bytes = count * _steps(workload, config) * _step_bytes(workload, config) + written_bytes
    dram_bytes = operands_bytes(workload) + written_bytes
    us = {
        "threadblocks": clocks / arch.boost_mhz,
        "l2": l2_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz),
        "dram": c.copy_us(dram_bytes, arch),
    }
    bound_by = max(us, key=lambda level: us[level])
    return Prediction(
        time_us=c.launch_us + us[bound_by] + c.exposed_fraction * (sum(us.values()) - us[bound_by]),
        bound_by=bound_by if us[bound_by] > c.launch_us else "launch",
        details=f"{resident} threadblocks on an SM",
        figures={
            "resident_threadblocks": resident,
            "l2_bytes": float(l2_bytes),
            "dram_bytes": float(dram_bytes),
        },
    )


def _steps(workload: Workload, config: SeparableConfig) -> int:
    return math.ceil(workload.last.problem.gemm.k / config.threadblock.k)


def _met_pixels(problem: Depthwise, pixels: int) -> float:
    """Return how many pixels of A so many neighbouring ones of the output meet."""
    rows = (
        min(pixels / problem.q + 1.0, float(problem.p))
        if pixels % problem.q
        else pixels / problem.q
    )
    columns = min(pixels, problem.q)
    height = (rows - 1) * problem.stride[0] + problem.dilation[0] * (problem.r - 1) + 1
    width = (columns - 1) * problem.stride[1] + problem.dilation[1] * (problem.s - 1) + 1
    return min(height, problem.h) * min(width, problem.w)


def _step_bytes(workload: Workload, config: SeparableConfig) -> float:
    """Return the bytes that a threadblock brings from L2 per step: pixels, filters and B."""
    problem, block = depthwise_of(workload.first), config.threadblock
    pixels = _met_pixels(problem, block.m) / problem.multiplier + problem.r * problem.s
    return (pixels + block.n) * block.k * problem.in_dtype.size_bytes


def _rows_of_tile(problem: Depthwise, columns: int) -> float:
    """Return how many rows a thread's pixels are in, by the slowest thread of a warp."""
    if problem.q % columns == 0:
        return 1.0
    return 2.0 if columns <= problem.q else math.ceil(columns / problem.q) + 1.0


def _tile_work(workload: Workload, config: SeparableConfig) -> tuple[float, float]:
    """Return a thread's loads and arithmetic for a tile of the depthwise convolution."""
    tile = tile_of(workload, config)
    often = _rows_of_tile(tile.problem, config.columns)
    each = 1 + of_element(workload.first.epilogue)
    return often * tile.loads, often * (tile.arithmetic + tile.sums * each)


def _clocks(
    workload: Workload, config: SeparableConfig, arch: Arch, c: ModelConstants, resident: int
) -> float:
    """Return the clocks of `resident` threadblocks that run at once on an SM."""
    problem, last = depthwise_of(workload.first), workload.last
    loads, arithmetic = _tile_work(workload, config)
    made = resident * tasks(workload, config)
    vector_bytes = vector_of_a(problem) * problem.in_dtype.size_bytes
    # Fewer warps than schedulers leave lanes idle.
    busy = min(1.0, resident * config.tiles.warps / SCHEDULERS)
    issue = made * (loads + arithmetic) / (SCHEDULERS * _WARP)
    work = {
        "arithmetic": max(issue, made * arithmetic / lanes(arch)) / busy,
        "L1": made * loads * vector_bytes / SHARED_BYTES_PER_CLOCK,
        "L2": resident * _step_bytes(workload, config) / bytes_per_clock(vector_bytes, arch, c),
        "products": step_clocks(
            last.problem,
            config.tiles,
            arch,
            c,
            resident=resident,
            load_bytes_per_clock=1.0,
            loaded_bytes=0,
        )[0],
    }
    rounds = math.ceil(tasks(workload, config) / config.threads)
    often = _rows_of_tile(problem, config.columns)
    waits = rounds * often * tile_of(workload, config).steps * arch.memory_latency_clocks
    busiest = max(work.values())
    step = max(busiest, waits) + c.exposed_fraction * (sum(work.values()) - busiest)
    end = epilogue_clocks(last.problem, last.epilogue, config.tiles, arch, c, resident=resident)
    return arch.memory_latency_clocks + _steps(workload, config) * step + end


def instructions(workload: Workload, config: SeparableConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch: tiles of the depthwise convolution, then products."""
    del arch  # the configuration has its instruction
    problem, last, block = depthwise_of(workload.first), workload.last, config.threadblock
    steps, count = _steps(workload, config), blocks(workload, config)
    loads, arithmetic = _tile_work(workload, config)
    of_thread = steps * math.ceil(tasks(workload, config) / config.threads)
    copy_bytes = vector_of_a(problem) * problem.in_dtype.size_bytes
    of_b = steps * block.n * block.k * problem.in_dtype.size_bytes / (config.threads * copy_bytes)
    outputs = block.m * block.n / config.threads
    gemm = last.problem.gemm
    return Instructions(
        threadblocks=count,
        idle=max(0.0, 1.0 - gemm.m * gemm.n / (count * block.m * block.n)),
        steps=steps,
        products=steps * products_of_step(config.tiles),
        shared_loads=steps * shared_loads_of_step(config.tiles, problem.in_dtype),
        copies=of_thread * loads + of_b,
        copy_bytes=copy_bytes,
        outputs=outputs,
        arithmetic=of_thread * arithmetic + outputs * of_element(last.epilogue),
    )
