"""Predict the time of an attention kernel from the resource that limits a multiprocessor.

Every threadblock multiplies all keys with its rows, also rows beyond the last and the padding of
the head, and reads all of K and V from L2. A warp multiplies, or computes exponentials; the units
work at once where a scheduler has several warps.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import is_async
from boltgen.families.attention.resources import (
    ROWS_PER_LANE,
    holds_queries,
    registers_per_thread,
    shared_memory_bytes,
)
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.heads.model import (
    exponential_clocks,
    mean_steps,
    score_arithmetic,
    score_clocks,
)
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    LDMATRIX_BYTES,
    SCHEDULERS,
    SHARED_BYTES_PER_CLOCK,
    bytes_per_clock,
    fitting_threadblocks,
    lanes,
    of_element,
    tensor_operand_bytes,
    tensor_tflops,
)
from boltgen.ir.dtypes import DType
from boltgen.problems.workload import Workload

# The reached share of mma.sync's rate on devices with a faster instruction: FlashAttention-2
# reaches 35 % of an H100's peak, where mma.sync could reach 62.9 %. Source: Shah et al.,
# FlashAttention-3, 2024, abstract; `mma_sync_fraction` of `boltgen.arch`.
_REACHED_OF_MMA_SYNC = 0.35 / 0.629
# Clocks that a warp waits in each step: for the other warps, and for two shuffles of each row. An
# estimate; other threadblocks of the SM cover it.
_STEP_CLOCKS = 120
# Instructions of a warp beside the arithmetic of scores: of each step, of each of a lane's rows in
# it, and of a copy with its address. Counted in PTX.
_STEP_INSTRUCTIONS, _ROW_INSTRUCTIONS, _COPY_INSTRUCTIONS = 50, 12, 10
_WARP = 32
# The four lanes of a row read 16 neighbouring bytes: half of a sector.
_READ_SECTORS = 2


def predict(
    workload: Workload, config: AttentionConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """Return the predicted time of `workload` in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    resident = fitting_threadblocks(
        arch,
        registers=registers_per_thread(workload, config, is_async=is_async(workload, arch)),
        shared_bytes=shared_memory_bytes(workload, config),
        warps=config.warps,
    )
    scores = workload.first.problem.gemm
    blocks = math.ceil(scores.m / config.rows) * workload.batch * config.splits
    waves = math.ceil(blocks / (arch.sm_count * resident))
    on_each = min(resident, math.ceil(blocks / arch.sm_count))
    us = {
        name: waves * clocks / (arch.boost_mhz * _reached(arch))
        for name, clocks in _clocks(workload, config, arch, c, resident=on_each).items()
    }
    moved_bytes = operands_bytes(workload) + outputs_bytes(workload)
    us["dram"] = moved_bytes / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    us["launch"] = c.launch_us
    bound_by = max(us, key=lambda name: us[name])
    busy_us = max(time for name, time in us.items() if name != "launch")
    return Prediction(
        time_us=c.launch_us + busy_us + _merge_us(workload, config, arch, c),
        bound_by=bound_by,
        details=f"{resident} threadblocks on an SM",
        figures={"resident_threadblocks": resident},
    )


def _merge_us(workload: Workload, config: AttentionConfig, arch: Arch, c: ModelConstants) -> float:
    """Return the time to zero split counts, and to add partial sums in the last threadblock."""
    if config.splits == 1:
        return 0.0
    rows = min(config.rows, workload.first.problem.gemm.m)
    left = config.splits * rows * config.columns * DType.F32.size_bytes
    read = _READ_SECTORS * left / (arch.l2_bytes_per_clock / arch.sm_count)
    clocks = 2 * arch.memory_latency_clocks + read
    return c.launch_us + c.handover_us + clocks / arch.boost_mhz


def _reached(arch: Arch) -> float:
    return 1.0 if arch.mma_sync_fraction == 1.0 else _REACHED_OF_MMA_SYNC


def _clocks(
    workload: Workload, config: AttentionConfig, arch: Arch, c: ModelConstants, *, resident: int
) -> dict[str, float]:
    """Return the clocks of `resident` threadblocks on an SM, by the resource that they wait for."""
    scores = workload.first
    narrowest = min(layer.problem.alignment_b for layer in workload.layers)
    size = workload.first.problem.in_dtype.size_bytes
    steps = _steps(workload, config)
    elements = round(resident * config.rows * config.keys * steps)
    flops = 2 * elements * (config.depth + config.columns)
    tensor_rate = tensor_tflops(DType.F32, arch) * 1e6 / arch.boost_mhz / arch.sm_count
    tensor = flops / tensor_rate
    # A step scales what was summed before.
    scaled = resident * config.rows * config.key_warps * config.columns * steps
    arithmetic = score_clocks(workload, elements, arch, c) + scaled / lanes(arch)
    exponentials = exponential_clocks(elements)
    loaded_bytes = resident * steps * config.keys * (config.depth + config.columns) * size
    loaded_bytes += elements * tensor_operand_bytes(scores.epilogue)
    first = 2 * arch.memory_latency_clocks + steps * _STEP_CLOCKS / resident
    both = {"tensor": tensor, "exponentials": exponentials, "arithmetic": arithmetic}
    if resident * config.warps < 2 * SCHEDULERS:
        both = {"tensor and exponentials": tensor + exponentials + arithmetic}
    both["l2"] = loaded_bytes / bytes_per_clock(narrowest * size, arch, c)
    read_bytes = resident * config.warps * _read_bytes(workload, config, arch)
    both["shared memory"] = read_bytes / SHARED_BYTES_PER_CLOCK
    issued = resident * config.warps * _issued(workload, config, arch)
    both["issue"] = issued / SCHEDULERS
    return {name: first + clocks for name, clocks in both.items()}


def _steps(workload: Workload, config: AttentionConfig) -> float:
    """Return the mean number of steps of a threadblock; shared keys are divided by whole steps."""
    steps = mean_steps(workload, config.rows, config.keys)
    return steps if config.splits == 1 else math.ceil(steps / config.splits)


def _issued(workload: Workload, config: AttentionConfig, arch: Arch) -> float:
    """Return the instructions of a warp along the keys."""
    of_launch = instructions(workload, config, arch)
    lane_rows = config.warp_rows / ROWS_PER_LANE
    scores = config.warp_rows * config.warp_keys / _WARP * score_arithmetic(workload)
    scaled = config.warp_rows * config.columns / _WARP
    of_step = scores + scaled + _STEP_INSTRUCTIONS + lane_rows * _ROW_INSTRUCTIONS
    # Each load has an addition, for its address.
    moved = 2 * of_launch.shared_loads + _COPY_INSTRUCTIONS * of_launch.copies
    return of_launch.products + moved + of_launch.steps * of_step


def _read_bytes(workload: Workload, config: AttentionConfig, arch: Arch) -> float:
    """Return the bytes of shared memory that a warp reads: keys and values in each step, its rows
    of Q as often or once.
    """
    steps = _steps(workload, config)
    is_once = holds_queries(config, is_async=is_async(workload, arch))
    elements = steps * config.warp_keys * (config.depth + config.columns)
    elements += (1 if is_once else steps) * config.warp_rows * config.depth
    return elements * workload.first.problem.in_dtype.size_bytes


def instructions(workload: Workload, config: AttentionConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch; a warp multiplies its rows with all keys and columns."""
    first, last = workload.layers
    steps = _steps(workload, config)
    width = config.depth + config.columns
    m, n, k = arch.mma_shapes[0]
    narrowest = min(layer.problem.alignment_b for layer in workload.layers)
    size = workload.first.problem.in_dtype.size_bytes
    copied = config.keys * width * size / (config.threads * narrowest * size)
    outputs = config.rows * config.columns / config.threads
    scores = steps * config.rows * config.keys / config.threads
    return Instructions(
        threadblocks=math.ceil(first.problem.gemm.m / config.rows) * workload.batch * config.splits,
        steps=steps,
        products=steps * config.warp_rows * config.warp_keys * width / (m * n * k),
        shared_loads=_read_bytes(workload, config, arch) / LDMATRIX_BYTES,
        copies=steps * copied,
        copy_bytes=narrowest * size,
        outputs=outputs,
        arithmetic=scores * score_arithmetic(workload) + outputs * of_element(last.epilogue),
    )
