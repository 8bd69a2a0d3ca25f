"""Predict the time of a norm of rows, from its bytes or its threads' waits.

Every byte is moved once between DRAM and L2; a streamed row is read again from L2. A threadblock
waits for its row and for each of its reductions; other threadblocks on the SM hide these waits. The
channels of a group in a pixel are read in whole sectors.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.norm.config import NormConfig
from boltgen.families.norm.legality import footprint, reads, reductions, run_bytes
from boltgen.families.norm.traits import RowNorm, norm_of, rows_of, vector_of
from boltgen.families.roofline import (
    arithmetic_clocks,
    bytes_per_clock,
    fitting_threadblocks,
    of_element,
)
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.elementwise import LoadKind
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.slices import loaded_shape
from boltgen.problems.workload import Layer

# Clocks of a shuffle with the addition after it, and of a barrier with the reads after it.
# Estimates.
_STEP_CLOCKS, _BARRIER_CLOCKS = 30, 60
# Instructions per element in a thread's registers: unpack, add, square, scale and pack.
_VALUE_CLOCKS = 6
# The smallest unit that DRAM and L2 move. Source: CUDA C++ Best Practices Guide, coalesced access.
_SECTOR_BYTES = 32


def bytes_moved(layer: Layer) -> int:
    """Return the bytes that are read and written, each tensor, row and column once."""
    problem = norm_of(layer)
    rows, columns = problem.matrix
    loaded = sum(
        math.prod(loaded_shape(problem, load.kind, columns)) * load.dtype.size_bytes
        for load in layer.loads
    )
    stored = sum(rows * columns * dtype.size_bytes for _, dtype in layer.further)
    return problem.a_bytes + loaded + stored + rows * columns * problem.out_dtype.size_bytes


def bytes_loaded(layer: Layer) -> int:
    """Return the bytes that SMs move in one pass; a gathered row counts each time."""
    norm = norm_of(layer).row_norm
    taken = norm.gathered
    again = 0 if taken is None else taken.rows - taken.distinct
    return bytes_moved(layer) + again * norm.columns * norm.in_dtype.size_bytes


def _prologue_bytes(layer: Layer) -> int:
    """Return the bytes of full tensors that a prologue loads."""
    rows, columns = layer.problem.matrix
    full = (load for load in layer.prologue.loads if load.kind is LoadKind.TENSOR)
    return sum(rows * columns * load.dtype.size_bytes for load in full)


def _used_share(problem: RowNorm, config: NormConfig) -> float:
    """Return the used share of the sectors that a warp reads."""
    if isinstance(problem, GroupNorm):
        run = run_bytes(problem)
        # A run may begin at any multiple of the greatest common divisor of run and sector.
        touched = run + _SECTOR_BYTES - math.gcd(run, _SECTOR_BYTES)
        return run / touched
    run = min(config.threads, 32) * vector_of(problem) * problem.in_dtype.size_bytes
    return min(1.0, run / _SECTOR_BYTES)


def predict(
    layer: Layer, config: NormConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """Return the predicted time of a norm in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    problem = norm_of(layer)
    taken = footprint(layer, config)
    resident = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    all_rows, columns = rows_of(problem)
    blocks = math.ceil(all_rows / config.rows)
    rounds = math.ceil(blocks / (resident * arch.sm_count))
    steps = math.ceil(math.log2(min(config.threads, 32)))
    of_reduction = steps * _STEP_CLOCKS + (_BARRIER_CLOCKS if config.threads > 32 else 0)
    vector = vector_of(problem)
    # The number of times that threads read a row, and the parts in which they read it.
    passes = reads(problem, config)
    parts = math.ceil(columns / config.columns(vector)) if config.streamed else 1
    waits = (
        (passes * parts + 1) * arch.memory_latency_clocks
        + reductions(problem.row_norm.function) * of_reduction
        + passes * parts * config.vectors * vector * _VALUE_CLOCKS
    )
    elements = math.ceil(blocks / arch.sm_count) * config.rows * columns
    # Counted twice below: besides its graphs a row has a pass for statistics and one for the
    # result.
    arithmetic = sum(
        arithmetic_clocks(graph, times * elements, arch, c)
        for graph, times in ((layer.prologue, passes), (layer.epilogue, 1))
    )
    vector_bytes = min(vector * problem.in_dtype.size_bytes, VECTOR_BYTES)
    load = bytes_per_clock(vector_bytes, arch, c) * _used_share(problem, config)
    read_again = (passes - 1) * (problem.a_bytes + _prologue_bytes(layer))
    # With fewer threadblocks than SMs, some SMs have no work.
    busy = min(arch.sm_count, blocks)
    loaded_bytes = (bytes_loaded(layer) + read_again) / busy
    us = {
        "loads of an SM": loaded_bytes / load / arch.boost_mhz,
        "waits": rounds * waits / arch.boost_mhz,
        "arithmetic": 2 * arithmetic / arch.boost_mhz,
        "DRAM": c.copy_us(bytes_moved(layer), arch),
    }
    bound_by = max(us, key=lambda name: us[name])
    # The wait at the end of the last threadblock is not hidden.
    last_us = waits / arch.boost_mhz if bound_by != "waits" else 0.0
    return Prediction(
        time_us=c.launch_us + us[bound_by] + c.exposed_fraction * last_us,
        bound_by=bound_by if us[bound_by] > c.launch_us else "its launch",
        details=f"{resident} threadblocks on an SM",
        figures={"resident_threadblocks": resident},
    )


def instructions(layer: Layer, config: NormConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch: a thread's vectors, for each read of the row.

    If warps share a row, each result of a reduction is read from shared memory.
    """
    del arch  # tensor cores are not used
    problem = norm_of(layer)
    vector, (all_rows, columns) = vector_of(problem), rows_of(problem)
    passes = reads(problem, config)
    parts = math.ceil(columns / config.columns(vector)) if config.streamed else 1
    outputs = parts * config.vectors * vector
    # A statistic takes one instruction per element, too.
    before = of_element(layer.prologue) + 1
    loads = passes * (1 + len(layer.prologue.loads)) + len(layer.epilogue.loads)
    of_row = reductions(problem.row_norm.function) if config.threads > 32 else 0
    return Instructions(
        threadblocks=math.ceil(all_rows / config.rows),
        steps=passes * parts,
        products=0.0,
        shared_loads=of_row,
        copies=loads * parts * config.vectors,
        copy_bytes=min(vector * problem.in_dtype.size_bytes, VECTOR_BYTES),
        outputs=outputs,
        arithmetic=outputs * (passes * before + of_element(layer.epilogue)),
    )
