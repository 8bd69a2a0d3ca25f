"""Predict the time of a back-to-back kernel on sm_90a, like `cutlass3.model` for a single layer.

Threadblocks are persistent: each multiprocessor runs one, which takes one tile of rows after the
other and computes all layers of it. Only the first layer loads A from memory, but every tile reads
all of every layer's B.

    time = launch + pipeline + max(busiest multiprocessor, L2 bytes, DRAM bytes) / sustained
    tile = over layers, k steps * max(tensor cores, shared memory, L2) and the epilogue
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes, touched_per_filled
from boltgen.families.chain.traits import Residence
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    SHARED_BYTES_PER_CLOCK,
    arithmetic_clocks,
    of_element,
    output_bytes_per_element,
    tensor_operand_bytes,
)
from boltgen.families.wgmma import (
    DEPTH_OF_WGMMA,
    TILE_DEPTH,
    WARPGROUP,
    WARPGROUP_M,
    steps,
)
from boltgen.problems.workload import Workload


def predict(
    workload: Workload,
    config: B2bSm90Config,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the predicted time of `workload` in a legal `config`."""
    c = constants or model_constants(arch)
    tiles = math.ceil(workload.first.problem.gemm.m / config.threadblock_m) * workload.batch
    per_sm = math.ceil(tiles / arch.sm_count)
    layers = range(len(workload.layers))
    clocks = arch.memory_latency_clocks + per_sm * sum(
        _product_clocks(workload, config, index, arch)
        + _epilogue_clocks(workload, config, index, arch, c)
        for index in layers
    )
    loaded = sum(
        _steps(workload, config, index) * _step_bytes(workload, config, index) for index in layers
    )
    out_bytes = outputs_bytes(workload)
    touched = _touched_per_filled(workload, config)
    l2_us = (tiles * loaded + touched * out_bytes) / (arch.l2_bytes_per_clock * arch.boost_mhz)
    dram_us = (operands_bytes(workload) + out_bytes) / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    slowest_us, bound_by = max(
        (clocks / arch.boost_mhz, "threadblocks"), (l2_us, "L2"), (dram_us, "DRAM")
    )
    begin_us, slowest_us = c.launch_us + c.pipeline_us, slowest_us / c.chain_fraction
    if slowest_us < begin_us:
        bound_by = "its launch"
    return Prediction(
        time_us=begin_us + slowest_us,
        bound_by=bound_by,
        details=f"at most {per_sm} tiles on an SM",
        figures={"tiles_per_sm": per_sm},
    )


def _steps(workload: Workload, config: B2bSm90Config, index: int) -> int:
    if index:
        return math.ceil(config.columns[index - 1] / TILE_DEPTH)
    return steps(workload.first.problem, TILE_DEPTH)


def _step_bytes(workload: Workload, config: B2bSm90Config, index: int) -> int:
    """Return the bytes that a threadblock loads per step of a layer; only the first loads A."""
    rows = 0 if index else config.threadblock_m
    size = workload.first.problem.in_dtype.size_bytes
    return (rows + config.columns[index]) * TILE_DEPTH * size


def _product_clocks(workload: Workload, config: B2bSm90Config, index: int, arch: Arch) -> float:
    """Return the clocks of a step: wgmma reads B from shared memory, and A unless in registers."""
    rows, columns = config.threadblock_m, config.columns[index]
    size = workload.first.problem.in_dtype.size_bytes
    flop_per_clock = arch.tensor_f32_acc_tflops * 1e6 / arch.boost_mhz / arch.sm_count
    tensor = 2 * rows * columns * TILE_DEPTH / flop_per_clock
    of_a = 0 if index and config.residence is Residence.REGISTERS else WARPGROUP_M
    of_warpgroup = (of_a + columns // config.along_n) * TILE_DEPTH * size
    loaded = _step_bytes(workload, config, index)
    step = max(
        tensor,
        (config.warpgroups * of_warpgroup + loaded) / SHARED_BYTES_PER_CLOCK,
        loaded / (arch.l2_bytes_per_clock / arch.sm_count),
    )
    return _steps(workload, config, index) * step


def _touched_per_filled(workload: Workload, config: B2bSm90Config) -> int:
    return touched_per_filled(workload.last.problem, config.columns[-1] // config.along_n)


def _epilogue_clocks(
    workload: Workload, config: B2bSm90Config, index: int, arch: Arch, c: ModelConstants
) -> float:
    """Return the clocks of arithmetic, of operands from L2, and of storing the result.

    The result goes to shared memory or L2.
    """
    layer = workload.layers[index]
    elements = config.threadblock_m * config.columns[index]
    moved = elements * tensor_operand_bytes(layer.epilogue)
    staged = 0
    if index + 1 == len(workload.layers):
        moved += (
            _touched_per_filled(workload, config)
            * elements
            * output_bytes_per_element(layer.problem, layer.epilogue)
        )
    elif config.residence is Residence.SHARED_MEMORY:
        staged = elements * layer.problem.out_dtype.size_bytes
    return (
        staged / SHARED_BYTES_PER_CLOCK
        + moved / (arch.l2_bytes_per_clock / arch.sm_count)
        + arithmetic_clocks(layer.epilogue, elements, arch, c)
    )


def instructions(workload: Workload, config: B2bSm90Config, arch: Arch) -> Instructions:
    """Return the instructions of a launch; a warpgroup has one wgmma per sixteen of K.

    TMA loads A and B in the first layer's steps, and only B later.
    """
    tiles = math.ceil(workload.first.problem.gemm.m / config.threadblock_m) * workload.batch
    per_sm = math.ceil(tiles / arch.sm_count)
    steps = [_steps(workload, config, index) for index in range(len(workload.layers))]
    copies = sum(steps) + steps[0]
    copied = sum(own * _step_bytes(workload, config, index) for index, own in enumerate(steps))
    threads = config.warpgroups * WARPGROUP
    made = [config.threadblock_m * columns / threads for columns in config.columns]
    operations = (of_element(layer.epilogue) for layer in workload.layers)
    return Instructions(
        threadblocks=min(tiles, arch.sm_count),
        steps=per_sm * sum(steps),
        products=per_sm * sum(steps) * TILE_DEPTH / DEPTH_OF_WGMMA,
        shared_loads=0.0,
        copies=per_sm * copies,
        copy_bytes=copied / copies,
        outputs=per_sm * made[-1],
        arithmetic=per_sm * sum(a * b for a, b in zip(made, operations, strict=True)),
    )
