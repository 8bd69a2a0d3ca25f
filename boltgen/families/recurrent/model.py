"""Predict the time of a recurrent layer: the time of a step, as often as it has steps.

A step begins when the one before it is done. Its warps wait for chains of products, for the
functions of their gates and for a barrier. Where the weights are not in registers, a threadblock
reads its part of them from L2 in each step. Threadblocks that share the hidden units wait for each
other besides, and read the state from L2.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.recurrent.code import padded
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.recurrent.legality import ROWS, footprint, parts_of
from boltgen.families.recurrent.traits import BLOCK, recurrent_of, units_of
from boltgen.families.roofline import (
    SHARED_BYTES_PER_CLOCK,
    bytes_per_clock,
    fitting_threadblocks,
    lanes,
    of_element,
    output_bytes_per_element,
    tensor_tflops,
)
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.recurrence import Cell
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer

# Clocks from one product to the next that adds to it, from a load of shared memory to its use, and
# of a barrier. Source of the first: Luo et al., 2024, table of mma latencies; the others are
# estimates.
_PRODUCT_CLOCKS, _SHARED_CLOCKS, _BARRIER_CLOCKS = 33, 30, 60
# Time of a barrier of all threadblocks. Source: Zhang et al., A Study of Single and Multi-device
# Synchronization Methods in Nvidia GPUs, 2020: 1.4 us on V100 with a threadblock on each SM.
_GRID_BARRIER_US = 1.4
# Instructions of a sigmoid or tanh, of which an LSTM has five, and clocks from one to the next.
_FUNCTION_INSTRUCTIONS, _FUNCTION_CLOCKS = 20, 80


def _functions(cell: Cell) -> int:
    """The sigmoids and tanhs of a hidden unit in a step."""
    return {Cell.LSTM: 5, Cell.GRU: 3, Cell.GRU_RESET_FIRST: 3}.get(cell, 1)


def _waits(layer: Layer, config: RecurrentConfig, arch: Arch) -> float:
    """Clocks of a step if nothing is short: its chains of instructions, one after another."""
    problem = recurrent_of(layer)
    blocks, per_block = _blocks(problem, config), BLOCK // arch.mma_shapes[0][2]
    halves = 2 if problem.cell is Cell.GRU_RESET_FIRST else 1
    chain = float(_SHARED_CLOCKS + blocks * per_block * _PRODUCT_CLOCKS)
    if not config.resident:
        # A few blocks of weights are under way at a time.
        chain += math.ceil(blocks / 4) * arch.memory_latency_clocks / 2
    after = 3 * _FUNCTION_CLOCKS if problem.cell is not Cell.RNN_RELU else _FUNCTION_CLOCKS
    wait = float(_BARRIER_CLOCKS)
    if config.slices > 1:
        wait += _BARRIER_CLOCKS + config.slices * _SHARED_CLOCKS
    if config.is_shared:
        # The barrier, then loads from L2 and stores to shared memory.
        wait += _GRID_BARRIER_US * arch.boost_mhz + arch.memory_latency_clocks + _BARRIER_CLOCKS
    return halves * (config.groups * chain + wait) + config.groups * after


def _blocks(problem: Recurrent, config: RecurrentConfig) -> int:
    """The blocks along K of a warp."""
    return padded(units_of(problem), config) // BLOCK // config.slices


def _busy(layer: Layer, config: RecurrentConfig, arch: Arch, c: ModelConstants) -> float:
    """Clocks of a step that a threadblock keeps a part of its SM busy."""
    problem = recurrent_of(layer)
    cell, hidden = problem.cell, units_of(problem)
    units = config.units or hidden
    size = problem.in_dtype.size_bytes
    flops = 2 * ROWS * cell.gates * units * hidden
    rate = tensor_tflops(DType.F32, arch) * 1e6 / arch.boost_mhz / arch.sm_count
    elements = ROWS * units
    each = _functions(cell) * _FUNCTION_INSTRUCTIONS + of_element(layer.epilogue)
    out = output_bytes_per_element(problem, layer.epilogue)
    moved = elements * (cell.gates * size + out)
    if not config.resident:
        moved += cell.gates * units * hidden * size
    if config.is_shared:
        moved += ROWS * hidden * size * (2 if cell is Cell.GRU_RESET_FIRST else 1)
    read = ROWS * hidden * size * (units // 8) * (1 if config.resident else cell.gates)
    return max(
        flops / rate,
        elements * each / lanes(arch),
        moved / bytes_per_clock(4 if config.resident and not config.is_shared else 16, arch, c),
        read / SHARED_BYTES_PER_CLOCK,
    )


def predict(
    layer: Layer, config: RecurrentConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """The predicted time of a recurrent layer in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    problem = recurrent_of(layer)
    taken = footprint(layer, config)
    resident = fitting_threadblocks(
        arch, registers=taken.registers, shared_bytes=taken.shared_memory_bytes, warps=taken.warps
    )
    blocks = threadblocks(problem, config)
    on_each = min(resident, math.ceil(blocks / arch.sm_count))
    if config.is_shared:
        # Teams run whole.
        parts = parts_of(problem, config)
        rounds = math.ceil(blocks // parts / (arch.sm_count * resident // parts))
    else:
        rounds = math.ceil(blocks / (arch.sm_count * on_each))
    waits, busy = _waits(layer, config, arch), on_each * _busy(layer, config, arch, c)
    m, n = problem.matrix
    steps_us = rounds * problem.steps * (waits + busy) / arch.boost_mhz
    out_bytes = m * n * output_bytes_per_element(problem, layer.epilogue)
    us = {
        "its steps": steps_us + 2 * arch.memory_latency_clocks / arch.boost_mhz,
        "DRAM": c.copy_us(problem.a_bytes + out_bytes, arch),
    }
    bound_by = max(us, key=lambda name: us[name])
    return Prediction(
        time_us=c.launch_us + us[bound_by],
        bound_by=bound_by if us[bound_by] > c.launch_us else "its launch",
        details=f"{blocks} threadblocks, {waits + busy:.0f} clocks in a step",
        figures={"resident_threadblocks": resident},
    )


def threadblocks(problem: Recurrent, config: RecurrentConfig) -> int:
    """The parts of a launch's work: rows of a direction, and a threadblock's hidden units."""
    return math.ceil(problem.batch_rows / ROWS) * problem.directions * parts_of(problem, config)


def instructions(layer: Layer, config: RecurrentConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch: of a warp's groups, in all steps."""
    problem = recurrent_of(layer)
    cell, blocks = problem.cell, _blocks(problem, config)
    of_group = blocks * cell.gates
    groups = problem.steps * config.groups
    weights = config.groups * of_group if config.resident else groups * of_group
    inputs = groups * cell.gates * 2
    outputs = groups * 4.0
    count = threadblocks(problem, config)
    used = problem.batch_rows * problem.directions * problem.hidden
    return Instructions(
        threadblocks=count,
        idle=1.0 - used / (count * ROWS * (config.units or units_of(problem))),
        steps=problem.steps,
        products=groups * of_group * BLOCK / arch.mma_shapes[0][2],
        shared_loads=groups * blocks * 2,
        copies=weights + inputs,
        copy_bytes=4 if config.resident else VECTOR_BYTES,
        outputs=outputs,
        arithmetic=outputs
        * (_functions(cell) * _FUNCTION_INSTRUCTIONS + of_element(layer.epilogue)),
    )
