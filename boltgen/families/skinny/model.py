"""Predict the time of a matmul of few rows: the time to load B from memory.

B streams through registers. The limit is the narrowest of DRAM, L2, an SM's loads, and the bytes in
flight, which must cover a round trip to DRAM (Little's law).
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    arithmetic_clocks,
    bytes_per_clock,
    fitting_threadblocks,
    lanes,
    of_element,
    output_bytes_per_element,
)
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.skinny.legality import blocks, footprint, vector_bytes_of_b
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer

# To B, and from the sums to D; nothing overlaps them.
_ROUND_TRIPS = 2
# Per packed number: two numbers share a shift, a mask, a difference and a multiplication. Source:
# templates/include/boltgen/skinny_packed.h, SkinnyStep::unpacked.
_UNPACKING_INSTRUCTIONS = 2
_WARP = 32


def predict(
    layer: Layer, config: SkinnyConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """Return the predicted time of a matmul in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    problem = layer.problem
    assert isinstance(problem, Gemm)
    taken = footprint(problem, config)
    resident = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    count = blocks(problem, config)
    on_each = math.ceil(count / arch.sm_count)
    at_once = min(count, resident * arch.sm_count)

    size = problem.in_dtype.size_bytes
    rows = min(config.rows, problem.m)
    # The bytes per number of B, with its part of a scale if B is packed.
    size_b = problem.b_bytes / (problem.batch * problem.n * problem.k)
    if problem.weights is None:
        size_b = size
    block_bytes = problem.k * (config.columns * size_b + rows * size)
    outputs = problem.batch * problem.m * problem.n
    out_bytes = outputs * output_bytes_per_element(problem, layer.epilogue)
    passes = math.ceil(problem.m / config.rows)
    again = max(0.0, 1.0 - c.l2_kept_fraction * arch.l2_bytes / problem.b_bytes)
    dram_bytes = problem.a_bytes + problem.b_bytes * (1 + (passes - 1) * again) + out_bytes
    on_their_way = at_once * config.round(problem) * (config.columns * size_b + rows * size)
    latency_us = arch.memory_latency_clocks / arch.boost_mhz
    load = bytes_per_clock(vector_bytes_of_b(problem, config), arch, c)
    arithmetic = arithmetic_clocks(layer.epilogue, on_each * rows * config.columns, arch, c)
    us = {
        "latency": count * block_bytes / on_their_way * latency_us,
        "L2": count * block_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz),
        "loads of an SM": (on_each * block_bytes / load + arithmetic) / arch.boost_mhz,
    }
    if problem.weights is not None:
        numbers = on_each * config.columns * problem.k
        us["unpacking"] = numbers * _UNPACKING_INSTRUCTIONS / lanes(arch) / arch.boost_mhz
    bound_by = max(us, key=lambda name: us[name])
    # More bytes in flight than just cover a round trip still help, because requests come in bursts.
    exposed_us = 0.0 if bound_by == "latency" else c.exposed_fraction * us["latency"]
    on_chip_us = _ROUND_TRIPS * latency_us + us[bound_by]
    dram_us = dram_bytes / (arch.dram_gb_per_s * 1e3 * c.dram_fraction)
    slowest_us, bound_by = max((on_chip_us, bound_by), (dram_us, "DRAM"))
    return Prediction(
        time_us=c.launch_us + slowest_us + exposed_us,
        bound_by=bound_by if slowest_us > c.launch_us else "its launch",
        details=f"{resident} threadblocks on an SM",
        figures={"resident_threadblocks": resident},
    )


def instructions(layer: Layer, config: SkinnyConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch.

    Warps take the steps of K in turn, several rounds are in flight at once, and each warp loads A
    and B into its registers.
    """
    problem = layer.problem
    assert isinstance(problem, Gemm)
    depth, (m, n, k) = config.depth(problem), arch.mma_shapes[0]
    rounds, rest = divmod(math.ceil(problem.k / depth), config.steps * config.warps)
    # In the last round, a warp whose first step is beyond K does nothing.
    steps = config.steps * (rounds + min(1.0, rest / config.warps))
    size, vector_bytes = problem.in_dtype.size_bytes, vector_bytes_of_b(problem, config)
    size_b = problem.b_bytes / (problem.batch * problem.n * problem.k)
    # B takes the place of A in the instruction, because B has many columns.
    products = config.columns * config.rows * depth / (m * n * k)
    of_a = config.rows * depth * size / min(VECTOR_BYTES, problem.alignment_a * size)
    of_b = config.columns * depth * size_b / vector_bytes
    numbers = config.columns * depth / _WARP if problem.weights is not None else 0.0
    outputs = config.rows * config.columns / config.threads
    return Instructions(
        threadblocks=blocks(problem, config),
        steps=steps,
        products=steps * products,
        shared_loads=0.0,
        copies=steps * (of_a + of_b) / _WARP,
        copy_bytes=vector_bytes,
        outputs=outputs,
        arithmetic=steps * numbers * _UNPACKING_INSTRUCTIONS + outputs * of_element(layer.epilogue),
    )
