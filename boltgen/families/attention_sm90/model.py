"""Predict the time of an attention kernel on sm_90a, like `b2b_sm90.model` for layers in sequence.

Threadblocks are persistent: each multiprocessor runs one, which takes one tile of rows after the
other and reads all keys that the rows see. While a warpgroup computes exponentials, its tensor
cores can multiply values, but the scores of the next step come first; a second warpgroup fills the
gaps of the first.

    time = launch + pipeline + max(busiest multiprocessor / reached, L2 bytes, DRAM bytes)
    step = max(all matmuls, all exponentials, one warpgroup's own sequence, shared memory, L2)

Source: Shah et al., FlashAttention-3, 2024, sections 3.1 and 3.2.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.attention_sm90.legality import stage_bytes
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes, touched_per_filled
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.heads.model import mean_steps, score_arithmetic, softmax_clocks
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    SHARED_BYTES_PER_CLOCK,
    arithmetic_clocks,
    of_element,
    output_bytes_per_element,
    tensor_operand_bytes,
)
from boltgen.families.wgmma import DEPTH_OF_WGMMA, WARPGROUP, WARPGROUP_M
from boltgen.problems.workload import Workload

# The reached share of a step's clocks: FlashAttention-3 reaches 740 TFLOP/s at a head of 256, where
# these clocks predict 920. Source: the same paper, abstract.
_REACHED = 0.8


def predict(
    workload: Workload,
    config: AttentionSm90Config,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the predicted time of `workload` in a legal `config`."""
    c = constants or model_constants(arch)
    tiles = math.ceil(workload.first.problem.gemm.m / config.rows) * workload.batch
    per_sm = math.ceil(tiles / arch.sm_count)
    steps = mean_steps(workload, config.rows, config.keys)
    dtype = workload.first.problem.in_dtype
    step, bound_by = _step_clocks(workload, config, arch, c)
    loaded = config.rows * config.depth * dtype.size_bytes + steps * _loaded_bytes(workload, config)
    of_tile = steps * (step + c.attention_step_clocks) + _output_clocks(workload, config, arch, c)
    clocks = 2 * arch.memory_latency_clocks + per_sm * of_tile
    out_bytes = outputs_bytes(workload)
    touched = touched_per_filled(workload.last.problem, config.columns)
    l2_us = (tiles * loaded + touched * out_bytes) / (arch.l2_bytes_per_clock * arch.boost_mhz)
    dram_us = (operands_bytes(workload) + out_bytes) / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    slowest_us, bound_by = max(
        (clocks / (arch.boost_mhz * _REACHED), bound_by), (l2_us, "L2"), (dram_us, "DRAM")
    )
    begin_us = c.launch_us + c.pipeline_us
    if slowest_us < begin_us:
        bound_by = "its launch"
    return Prediction(
        time_us=begin_us + slowest_us,
        bound_by=bound_by,
        details=f"at most {per_sm} tiles on an SM",
        figures={"tiles_per_sm": per_sm},
    )


def _loaded_bytes(workload: Workload, config: AttentionSm90Config) -> float:
    """Return the bytes that a threadblock reads per step: K, V, and the masks of its scores."""
    dtype = workload.first.problem.in_dtype
    masks = config.rows * config.keys * tensor_operand_bytes(workload.first.epilogue)
    return stage_bytes(config, dtype) + masks


def _step_clocks(
    workload: Workload, config: AttentionSm90Config, arch: Arch, c: ModelConstants
) -> tuple[float, str]:
    """Return the clocks of a step, and the resource that limits it.

    Every wgmma reads its whole B from shared memory; in the first matmul it also reads A.
    """
    flop_per_clock = arch.tensor_f32_acc_tflops * 1e6 / arch.boost_mhz / arch.sm_count
    of_warpgroup = WARPGROUP_M * config.keys
    scores, values = (
        2 * of_warpgroup * extent / flop_per_clock for extent in (config.depth, config.columns)
    )
    exponentials = softmax_clocks(workload, of_warpgroup, arch, c)
    loaded, dtype = _loaded_bytes(workload, config), workload.first.problem.in_dtype
    queries = WARPGROUP_M * config.depth * dtype.size_bytes
    shared = config.warpgroups * (queries + stage_bytes(config, dtype)) + stage_bytes(config, dtype)
    return max(
        (config.warpgroups * (scores + values), "tensor cores"),
        (config.warpgroups * exponentials, "exponentials"),
        (scores + max(values, exponentials), "one warpgroup's products and exponentials"),
        (shared / SHARED_BYTES_PER_CLOCK, "shared memory"),
        (loaded / (c.tma_factor * arch.l2_bytes_per_clock / arch.sm_count), "an SM's share of L2"),
    )


def _output_clocks(
    workload: Workload, config: AttentionSm90Config, arch: Arch, c: ModelConstants
) -> float:
    """Return the epilogue's clocks: arithmetic, operands from L2, and the output's way to L2."""
    layer = workload.last
    elements = config.rows * config.columns
    moved = elements * tensor_operand_bytes(layer.epilogue)
    moved += (
        touched_per_filled(layer.problem, config.columns)
        * elements
        * output_bytes_per_element(layer.problem, layer.epilogue)
    )
    return moved / (arch.l2_bytes_per_clock / arch.sm_count) + arithmetic_clocks(
        layer.epilogue, elements, arch, c
    )


def instructions(workload: Workload, config: AttentionSm90Config, arch: Arch) -> Instructions:
    """Return the instructions of a launch: TMA loads K and V per step, and Q once per tile."""
    first, last = workload.layers
    dtype = first.problem.in_dtype
    tiles = math.ceil(first.problem.gemm.m / config.rows) * workload.batch
    per_sm = math.ceil(tiles / arch.sm_count)
    steps = per_sm * mean_steps(workload, config.rows, config.keys)
    copied = (
        steps * stage_bytes(config, dtype) + per_sm * config.rows * config.depth * dtype.size_bytes
    )
    copies = 2 * steps + per_sm
    rows_of_thread = WARPGROUP_M / WARPGROUP
    outputs = per_sm * rows_of_thread * config.columns
    scores = steps * rows_of_thread * config.keys
    return Instructions(
        threadblocks=min(tiles, arch.sm_count),
        steps=steps,
        products=steps * (config.depth + config.keys) / DEPTH_OF_WGMMA,
        shared_loads=0.0,
        copies=copies,
        copy_bytes=copied / copies,
        outputs=outputs,
        arithmetic=scores * score_arithmetic(workload) + outputs * of_element(last.epilogue),
    )
