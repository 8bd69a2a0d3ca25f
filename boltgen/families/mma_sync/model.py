"""Predict a kernel's time from its problem, configuration and architecture alone.

The model of one launch is a hierarchical roofline with a pipeline:

    time = launch + max(sum of waves, L2 bytes, DRAM bytes) + split-K reduction
    wave = prologue + k steps * step + epilogue
    step = slowest of (tensor cores, shared memory, L2, latency), and a share of the rest

A wave runs `resident` threadblocks on every SM; the last wave may have fewer and be faster. The
model ranks configurations; it is no simulator. Figures of the hardware come from `boltgen.arch`,
undocumented constants from `families.constants`. Equal inputs give equal predictions in every
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.families.columns import ceil_div, least, most, where
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.mma_sync.config import Tiles, column
from boltgen.families.mma_sync.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.mma_sync.traffic import (
    Tiling,
    Traffic,
    operand_bytes_per_step,
    shared_bytes_per_step,
    tiling,
    traffic,
)
from boltgen.families.mma_sync.traits import ConvIterator, conv_iterator
from boltgen.families.roofline import (
    SCHEDULERS,
    SHARED_BYTES_PER_CLOCK,
    arithmetic_clocks,
    bytes_per_clock,
    fitting_threadblocks,
    output_bytes_per_element,
    tensor_tflops,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    ElementwiseGraph,
)
from boltgen.problems.convolution import Convolution
from boltgen.problems.problem import Problem

Array = NDArray[np.float64]


def predict(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    constants: ModelConstants | None = None,
    *,
    kept_bytes: float = 0.0,
) -> Prediction:
    """Return the predicted time of `problem` with `epilogue` in a legal `config` on `arch`.

    L2 keeps `kept_bytes` more of the operands than of tensors that are read in order.
    """
    found = analysed(problem, epilogue, config, arch, constants, kept_bytes=kept_bytes)
    return Prediction(
        time_us=found.time_us,
        bound_by=found.bound_by,
        details=f"{found.waves:.2f} waves, "
        f"{found.traffic.intensity['dram']:.0f} FLOP for each byte of DRAM",
        figures=_figures(problem, config, arch, found),
    )


def _figures(problem: Problem, config: Tiles, arch: Arch, found: Launched) -> dict[str, float]:
    """Return the figures of a prediction.

    `occupancy` is resident warps divided by the SM's limit. `efficiency` is the useful FLOP divided
    by the FLOP that tensor cores can do in the predicted time.
    that the tensor cores do in the predicted time.
    """
    resident = resident_threadblocks(config, problem.in_dtype, problem.acc_dtype, arch)
    peak = tensor_tflops(problem.acc_dtype, arch) * 1e6
    return {
        "waves": found.waves,
        "occupancy": resident * config.warps / arch.max_warps_per_sm,
        "resident_threadblocks": resident,
        "rows": found.tiles.rows,
        "columns": found.tiles.columns,
        "threadblocks": found.tiles.blocks,
        "steps": found.tiles.steps,
        "registers": registers_per_thread(config, problem.in_dtype, problem.acc_dtype),
        "efficiency": problem.flops / (peak * found.time_us),
        **{f"traffic.{name}": value for name, value in found.traffic._asdict().items()},
    }


def analysed(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    constants: ModelConstants | None = None,
    *,
    kept_bytes: float = 0.0,
) -> Launched:
    """Return the parts from which `predict` computes the time of a launch."""
    c = constants or model_constants(arch)
    resident = resident_threadblocks(config, problem.in_dtype, problem.acc_dtype, arch)
    return _launch(problem, epilogue, config, arch, c, resident=resident, kept_bytes=kept_bytes)


def times_us(
    problem: Problem,
    epilogue: ElementwiseGraph,
    configs: Sequence[Tiles],
    arch: Arch,
    constants: ModelConstants | None = None,
    *,
    kept_bytes: float = 0.0,
) -> Array:
    """Return the times of `predict` for many configurations at once."""
    config = column(configs)
    c = constants or model_constants(arch)
    resident = _fitting(config, problem.in_dtype, problem.acc_dtype, arch)
    found = _launch(problem, epilogue, config, arch, c, resident=resident, kept_bytes=kept_bytes)
    return np.asarray(found.time_us, dtype=np.float64)


class Launched(NamedTuple):
    """The parts of a prediction.

    `us` has the times of all waves and of the memory levels, `step` the clocks of a full step of K
    by the resource that it waits for. `waves` is the number of waves, as a fraction.
    """

    time_us: float
    tiles: Tiling
    traffic: Traffic
    us: dict[str, float]
    step: dict[str, float]
    waves: float
    least_us: float

    @property
    def bound_by(self) -> str:
        """The largest part of the time: a part of a step, "l2", "dram" or "launch"."""
        longest = max(self.us, key=lambda name: self.us[name])
        if self.us[longest] < self.least_us:
            return "launch"
        return max(self.step, key=lambda name: self.step[name]) if longest == "waves" else longest


def _launch(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    c: ModelConstants,
    *,
    resident: int,
    kept_bytes: float,
) -> Launched:
    tiles = tiling(problem, config)
    moved = traffic(problem, epilogue, config, arch, c, tiles=tiles, resident=resident)
    if kept_bytes:
        moved = moved._replace(dram_bytes=moved.dram_bytes - kept_bytes)
    waves_us, step = _waves_us(problem, epilogue, config, arch, c, tiles=tiles, resident=resident)
    us = {
        "waves": waves_us,
        "l2": moved.l2_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz),
        "dram": moved.dram_bytes / (arch.dram_gb_per_s * 1e3 * c.dram_fraction),
    }
    # Memory for sums of rows or columns is cleared first, with a launch each.
    launches = 1 + len(epilogue.added_up)
    slowest_us = most(most(us["waves"], us["l2"]), us["dram"])
    time_us = launches * c.launch_us + slowest_us + _split_us(config, tiles, arch, c)
    waves = tiles.blocks / (arch.sm_count * resident)
    return Launched(time_us, tiles, moved, us, step, waves, c.launch_us)


@lru_cache(maxsize=16384)
def resident_threadblocks(config: Tiles, in_dtype: DType, acc_dtype: DType, arch: Arch) -> int:
    """Return the threadblocks that one SM runs at once; at least 1 for a legal configuration."""
    return _fitting(config, in_dtype, acc_dtype, arch)


def _fitting(config: Tiles, in_dtype: DType, acc_dtype: DType, arch: Arch) -> int:
    registers = registers_per_thread(config, in_dtype, acc_dtype)
    shared = shared_memory_bytes(config, in_dtype, acc_dtype)
    return fitting_threadblocks(arch, registers=registers, shared_bytes=shared, warps=config.warps)


def _waves_us(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    c: ModelConstants,
    *,
    tiles: Tiling,
    resident: int,
) -> tuple[float, dict[str, float]]:
    """Return the time of all waves on the busiest SM, and the waits in a full step."""
    full, rest = divmod(tiles.blocks, arch.sm_count * resident)
    narrowest = min(problem.alignment_a, problem.alignment_b)
    load = bytes_per_clock(narrowest * problem.in_dtype.size_bytes, arch, c)
    loaded = operand_bytes_per_step(config, problem.in_dtype)
    clocks: float = 0.0
    step: dict[str, float] = {}
    # Without a partial last wave, one threadblock is assumed for it, with a weight of 0.
    on_last = most(1, ceil_div(rest, arch.sm_count))
    for count, on_each in ((where(rest > 0, 1, 0), on_last), (full, resident)):
        if isinstance(count, int) and not count:
            continue
        of_step, step = step_clocks(
            problem, config, arch, c, resident=on_each, load_bytes_per_clock=load
        )
        begin = prologue_clocks(config, arch, on_each, load, loaded, steps=tiles.steps)
        end = epilogue_clocks(problem, epilogue, config, arch, c, resident=on_each)
        clocks += count * (begin + tiles.steps * of_step + end)
    return clocks / arch.boost_mhz, step


def step_clocks(
    problem: Problem,
    config: Tiles,
    arch: Arch,
    c: ModelConstants,
    *,
    resident: int,
    load_bytes_per_clock: float,
    loaded_bytes: int | None = None,
) -> tuple[float, dict[str, float]]:
    """Return the clocks of one step of K with `resident` threadblocks per SM, and its waits.

    `loaded_bytes` is what a threadblock loads from L2 per step; by default the tiles of A and B.
    """
    tile = config.threadblock
    peak_per_us = tensor_tflops(problem.acc_dtype, arch) * 1e6
    flops_per_clock = peak_per_us / arch.boost_mhz / arch.sm_count
    schedulers_busy = resident * config.warps / SCHEDULERS
    # Fewer warps than schedulers leave tensor cores idle; few warps leave issue slots empty.
    issue = least(1.0, schedulers_busy) * schedulers_busy / (schedulers_busy + c.half_issue_warps)
    tensor = resident * 2.0 * tile.m * tile.n * tile.k / flops_per_clock / issue
    shared = resident * shared_bytes_per_step(config, problem.in_dtype) / SHARED_BYTES_PER_CLOCK
    loaded = (
        operand_bytes_per_step(config, problem.in_dtype) if loaded_bytes is None else loaded_bytes
    )
    l2 = resident * loaded / load_bytes_per_clock
    if isinstance(problem, Convolution):
        addresses = _conv_factor(conv_iterator(problem), c)
        l2 *= addresses
        tensor *= addresses
    latency = arch.memory_latency_clocks / most(config.stages - 1, 1)
    bounds = {"tensor": tensor, "shared memory": shared, "l2": l2, "latency": latency}
    # The busiest unit hides the others' work, or is itself hidden by the latency.
    busiest = most(most(tensor, shared), l2)
    hidden = tensor + shared + l2 - busiest
    return most(busiest, latency) + c.exposed_fraction * hidden + c.step_clocks, bounds


def _conv_factor(iterator: ConvIterator, c: ModelConstants) -> float:
    match iterator:
        case ConvIterator.OPTIMIZED:
            return c.optimized_conv_factor
        case ConvIterator.ANALYTIC | ConvIterator.FIXED_CHANNELS:
            return c.analytic_conv_factor  # both divide to find a vector's filter position


def prologue_clocks(
    config: Tiles,
    arch: Arch,
    resident: int,
    load_bytes_per_clock: float,
    loaded_bytes: int,
    *,
    steps: int,
) -> float:
    """Return the clocks until all stages but the last are filled, before the first multiplication.

    If K has fewer `steps` than stages, columns beyond K are not copied.
    """
    filled = loaded_bytes * least(config.stages - 1, steps) * resident
    clocks: float = arch.memory_latency_clocks + filled / load_bytes_per_clock
    return clocks


def epilogue_clocks(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    c: ModelConstants,
    *,
    resident: int,
) -> float:
    """Return the clocks of the epilogues of `resident` threadblocks on an SM."""
    sums = resident * config.threadblock.m * config.threadblock.n
    # Sums pass through shared memory once each way, then to L2 in vectors of the output's
    # alignment.
    staged = 2 * sums * problem.acc_dtype.size_bytes / SHARED_BYTES_PER_CLOCK
    elements = sums // 2 if epilogue.is_paired else sums
    vector = problem.alignment_d * problem.out_dtype.size_bytes
    out_bytes = elements * output_bytes_per_element(problem, epilogue)
    return (
        arch.memory_latency_clocks
        + staged
        + out_bytes / bytes_per_clock(vector, arch, c)
        + arithmetic_clocks(epilogue, elements, arch, c)
    )


def _split_us(config: Tiles, tiles: Tiling, arch: Arch, c: ModelConstants) -> float:
    """Return the time of serial split-K: each slice of a tile adds to the one before it."""
    # Partial sums are FP32; each slice but the last writes and reads them once, through L2.
    sums_bytes = tiles.gemm.m * tiles.gemm.n * DType.F32.size_bytes
    partial_bytes = 2 * (config.split_k - 1) * sums_bytes
    l2_bytes_per_us = arch.l2_bytes_per_clock * arch.boost_mhz
    return (config.split_k - 1) * c.handover_us + partial_bytes / l2_bytes_per_us
