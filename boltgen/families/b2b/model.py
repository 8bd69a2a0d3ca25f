"""Predict the time of a back-to-back kernel, like `mma_sync.model` for a single layer.

A threadblock computes `threadblock_m` rows of every layer in turn, so its time is the sum over
layers. Only the first layer loads A from memory, and intermediates never go there. In return there
are fewer threadblocks, each takes more registers and shared memory, and every threadblock reads all
of every layer's B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.chain.traffic import operands_bytes, outputs_bytes
from boltgen.families.chain.traits import Residence
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Prediction
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.instructions import products_of_step, shared_loads_of_step
from boltgen.families.mma_sync.model import epilogue_clocks, prologue_clocks, step_clocks
from boltgen.families.mma_sync.traffic import channel_steps
from boltgen.families.roofline import (
    SHARED_BYTES_PER_CLOCK,
    arithmetic_clocks,
    bytes_per_clock,
    fitting_threadblocks,
    of_element,
    tensor_operand_bytes,
)
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload


def predict(
    workload: Workload, config: B2bConfig, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """Return the predicted time of `workload` in a legal `config` on `arch`."""
    c = constants or model_constants(arch)
    resident = fitting_threadblocks(
        arch,
        registers=registers_per_thread(workload, config),
        shared_bytes=shared_memory_bytes(workload, config),
        warps=config.warps,
    )
    rows = workload.first.problem.gemm.m
    blocks = math.ceil(rows / config.threadblock_m) * workload.batch
    full, rest = divmod(blocks, arch.sm_count * resident)
    sm = _Multiprocessor(workload, config, arch, c)
    clocks = full * sm.clocks(resident)
    if rest:
        clocks += sm.clocks(-(-rest // arch.sm_count))
    written_bytes = outputs_bytes(workload)
    loaded_bytes = sum(
        _steps(workload, config, index) * _loaded_bytes(workload, config, index)
        for index in range(len(workload.layers))
    )
    l2_bytes = float(blocks * loaded_bytes + written_bytes)
    dram_bytes = float(operands_bytes(workload) + written_bytes)
    levels_us = {
        "threadblocks": clocks / arch.boost_mhz,
        "l2": l2_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz),
        "dram": dram_bytes / (arch.dram_gb_per_s * 1e3 * c.dram_fraction),
    }
    bound_by = max(levels_us, key=lambda level: levels_us[level])
    return Prediction(
        time_us=c.launch_us + levels_us[bound_by],
        bound_by=bound_by if levels_us[bound_by] > c.launch_us else "launch",
        details=f"{resident} threadblocks on an SM",
        figures={
            "resident_threadblocks": resident,
            "l2_bytes": l2_bytes,
            "dram_bytes": dram_bytes,
        },
    )


def _steps(workload: Workload, config: B2bConfig, index: int) -> int:
    layer, depth = workload.layers[index], config.layers[index].k
    if index == 0 and isinstance(layer.problem, Conv2d):
        return channel_steps(layer.problem, depth)
    return math.ceil(layer.problem.gemm.k / depth)


def _loaded_bytes(workload: Workload, config: B2bConfig, index: int) -> int:
    """Return the bytes that a threadblock loads per step of a layer; only the first loads A."""
    tile = config.layers[index]
    rows = config.threadblock_m if index == 0 else 0
    return (rows + tile.n) * tile.k * workload.first.problem.in_dtype.size_bytes


@dataclass(frozen=True, slots=True)
class _Multiprocessor:
    """Clocks of threadblocks that run at once on one SM."""

    workload: Workload
    config: B2bConfig
    arch: Arch
    constants: ModelConstants

    def clocks(self, resident: int) -> float:
        """Return the clocks of all layers of `resident` threadblocks."""
        return sum(self._layer(index, resident) for index in range(len(self.workload.layers)))

    def _layer(self, index: int, resident: int) -> float:
        workload, config, arch, c = self.workload, self.config, self.arch, self.constants
        layer, tiles = workload.layers[index], config.of_layer(index)
        problem = layer.problem
        narrowest = problem.alignment_b if index else min(problem.alignment_a, problem.alignment_b)
        rate = bytes_per_clock(narrowest * problem.in_dtype.size_bytes, arch, c)
        loaded = _loaded_bytes(workload, config, index)
        step, _ = step_clocks(
            problem,
            tiles,
            arch,
            c,
            resident=resident,
            load_bytes_per_clock=rate,
            loaded_bytes=loaded,
        )
        steps = _steps(workload, config, index)
        begin = prologue_clocks(tiles, arch, resident, rate, loaded, steps=steps)
        if index + 1 == len(workload.layers):
            end = epilogue_clocks(problem, layer.epilogue, tiles, arch, c, resident=resident)
        else:
            end = self._inner_epilogue(index, resident)
        return begin + steps * step + end

    def _inner_epilogue(self, index: int, resident: int) -> float:
        """Return the clocks of arithmetic, of operands from L2, and of staging in shared memory."""
        layer, tiles = self.workload.layers[index], self.config.of_layer(index)
        elements = resident * tiles.threadblock.m * tiles.threadblock.n
        is_shared = self.config.residence is Residence.SHARED_MEMORY
        size = layer.problem.out_dtype.size_bytes
        staged = elements * size / SHARED_BYTES_PER_CLOCK if is_shared else 0.0
        operands = elements * tensor_operand_bytes(layer.epilogue)
        # A lane's fragment of an accumulator holds pairs of columns.
        rate = bytes_per_clock(2 * size, self.arch, self.constants)
        arithmetic = arithmetic_clocks(layer.epilogue, elements, self.arch, self.constants)
        return staged + operands / rate + arithmetic


def instructions(workload: Workload, config: B2bConfig, arch: Arch) -> Instructions:
    """Return the instructions of a launch: all layers in turn, each with its own steps."""
    del arch  # the configuration has its instruction
    products = shared_loads = copied_bytes = arithmetic = 0.0
    steps = 0
    for index, layer in enumerate(workload.layers):
        of_layer, own = config.of_layer(index), _steps(workload, config, index)
        steps += own
        products += own * products_of_step(of_layer)
        loads_a = index == 0 or config.residence is Residence.SHARED_MEMORY
        shared_loads += own * shared_loads_of_step(
            of_layer, layer.problem.in_dtype, loads_a=loads_a
        )
        copied_bytes += own * _loaded_bytes(workload, config, index)
        made = config.threadblock_m * config.layers[index].n / config.threads
        arithmetic += made * of_element(layer.epilogue)
    first = workload.first.problem
    aligned = min(first.alignment_a, *(each.problem.alignment_b for each in workload.layers))
    copy_bytes = aligned * first.in_dtype.size_bytes
    return Instructions(
        threadblocks=math.ceil(first.gemm.m / config.threadblock_m) * workload.batch,
        steps=steps,
        products=products,
        shared_loads=shared_loads,
        copies=copied_bytes / (config.threads * copy_bytes),
        copy_bytes=copy_bytes,
        outputs=config.threadblock_m * config.layers[-1].n / config.threads,
        arithmetic=arithmetic,
    )
