"""Predict the time of a depthwise convolution: from its bytes, or from its instructions.

Each tensor goes over DRAM's bus once: pixels that tiles share are in L2. A threadblock reads the
pixels around its tiles anew from L2, and each thread those around its own tile from L1.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise.legality import blocks, footprint, tile_of
from boltgen.families.depthwise.traits import rounded_sum
from boltgen.families.depthwise_tile import Tile, depthwise_of, vector_of, vector_of_a
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.roofline import (
    SCHEDULERS,
    SHARED_BYTES_PER_CLOCK,
    fitting_threadblocks,
    lanes,
    of_element,
    output_bytes_per_element,
)
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Layer

_WARP = 32
# The least bytes that L2 moves. Source: CUDA C++ Best Practices Guide, coalesced access.
_SECTOR_BYTES = 32
_ROUNDING_CLOCKS = 32  # a warp's load, division, rounding and store, several of them under way


def bytes_moved(layer: Layer) -> int:
    """Return the bytes that are read and written, each once, without rows of operands."""
    problem = depthwise_of(layer)
    m, n = problem.matrix
    outputs = m * n * output_bytes_per_element(problem, layer.epilogue)
    return problem.a_bytes + problem.b_bytes + outputs


def _arithmetic(layer: Layer, tile: Tile) -> float:
    """Return the arithmetic instructions of a thread, with its epilogue."""
    return tile.arithmetic + tile.sums * (1 + of_element(layer.epilogue))


def _rounding_clocks(layer: Layer, config: DepthwiseConfig, arch: Arch) -> float:
    """Return the clocks of the last threadblock of a slab: it counts, and rounds all sums."""
    if rounded_sum(layer) is None:
        return 0.0
    problem = depthwise_of(layer)
    vector = vector_of(problem)
    channels = config.of_slab(problem.k // vector) * vector
    of_thread = math.ceil(problem.n * channels / config.threads)
    return 2 * arch.memory_latency_clocks + of_thread * _ROUNDING_CLOCKS


def _block_bytes(problem: Depthwise, config: DepthwiseConfig) -> float:
    """Return the bytes of A and of the filter that a threadblock brings from L2."""
    slab = config.of_slab(problem.k // vector_of(problem))
    tiles = max(config.threads / slab, 1.0)
    beside = min(tiles, math.ceil(problem.q / config.columns))
    columns, rows = beside * config.columns, math.ceil(tiles / beside) * config.rows
    window = (problem.r, problem.s)
    height, width = (
        (extent - 1) * problem.stride[axis] + problem.dilation[axis] * (window[axis] - 1) + 1
        for axis, extent in enumerate((rows, columns))
    )
    pixels = min(height, problem.h) * min(width, problem.w) / problem.multiplier
    channels = min(slab, config.threads) * vector_of(problem) * problem.in_dtype.size_bytes
    return channels * (pixels + problem.r * problem.s)


def predict(
    layer: Layer, config: DepthwiseConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """The predicted time of a convolution in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    problem = depthwise_of(layer)
    taken = footprint(layer, config)
    resident = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    count = blocks(problem, config)
    rounds = math.ceil(count / (resident * arch.sm_count))
    on_each = math.ceil(count / arch.sm_count)
    m, n = problem.matrix
    out_bytes = m * n * output_bytes_per_element(problem, layer.epilogue)
    threads = on_each * config.threads
    tile = tile_of(problem, config)
    loads = tile.loads
    vector_bytes = vector_of_a(problem) * problem.in_dtype.size_bytes
    arithmetic = _arithmetic(layer, tile)
    issued = (loads + arithmetic) / (SCHEDULERS * _WARP)
    of_warp = (tile.steps + 1) * arch.memory_latency_clocks
    # Each thread adds a number for each of its channels, in a sector of its own.
    added = sum(store.reduction is not None for store in layer.epilogue.results)
    sums_bytes = added * count * config.threads * vector_of(problem) * _SECTOR_BYTES
    l2_bytes = count * _block_bytes(problem, config) + out_bytes + sums_bytes
    clocks = {
        "its instructions": threads * max(issued, arithmetic / lanes(arch)),
        "loads of an SM": threads * loads * vector_bytes / SHARED_BYTES_PER_CLOCK,
        "waits": rounds * of_warp + _rounding_clocks(layer, config, arch),
        "L2": l2_bytes / arch.l2_bytes_per_clock,
    }
    us = {name: value / arch.boost_mhz for name, value in clocks.items()}
    us["DRAM"] = c.copy_us(bytes_moved(layer), arch)
    bound_by = max(us, key=lambda name: us[name])
    others_us = sum(us.values()) - us[bound_by]
    return Prediction(
        time_us=c.launch_us + us[bound_by] + c.exposed_fraction * others_us,
        bound_by=bound_by if us[bound_by] > c.launch_us else "its launch",
        details=f"{resident} threadblocks on an SM",
        figures={"resident_threadblocks": resident},
    )


def instructions(layer: Layer, config: DepthwiseConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch: a thread's pixels, for each row of the filter."""
    del arch  # no tensor cores
    problem = depthwise_of(layer)
    count = blocks(problem, config)
    tile = tile_of(problem, config)
    m, n = problem.matrix
    return Instructions(
        threadblocks=count,
        idle=max(0.0, 1.0 - m * n / (count * config.threads * tile.sums)),
        steps=tile.steps,
        products=0.0,
        shared_loads=0.0,
        copies=tile.loads + config.rows * config.columns * len(layer.epilogue.loads),
        copy_bytes=min(vector_of_a(problem) * problem.in_dtype.size_bytes, VECTOR_BYTES),
        outputs=tile.sums,
        arithmetic=_arithmetic(layer, tile),
    )
