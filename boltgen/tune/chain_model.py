"""Predicts the time of a back-to-back kernel, as `tune.cost_model` does of a single one.

A threadblock has `threadblock_m` rows of every layer and runs them one after the other, so its
time is the sum of theirs; A comes from memory for the first layer only, and of the intermediates
nothing goes there. Against that stand fewer threadblocks, each with more registers and shared
memory, and every threadblock reads all of every layer's B.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import Chain, batch_of, describe_chain, implicit_gemm
from boltgen.ir.problem import Conv2d, Problem
from boltgen.space.b2b_enumerate import enumerate_chain_configs
from boltgen.space.b2b_resources import chain_registers_per_thread, chain_shared_memory_bytes
from boltgen.space.config import B2bConfig, Residence
from boltgen.tune.cost_model import (
    arithmetic_clocks,
    bytes_per_clock,
    epilogue_clocks,
    fitting_threadblocks,
    prologue_clocks,
    step_clocks,
)
from boltgen.tune.model_constants import ModelConstants, model_constants
from boltgen.tune.traffic import (
    F16_BYTES,
    activation_bytes,
    channel_steps,
    output_bytes_per_element,
    tensor_operand_bytes,
)

# Source: CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes each clock.
_SHARED_BYTES_PER_CLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPrediction:
    """What the model says of one launch of a back-to-back kernel.

    `bound_by` is "threadblocks" where their own work takes longest, or "l2", "dram" or "launch".
    """

    time_us: float
    bound_by: str
    resident_threadblocks: int
    l2_bytes: float
    dram_bytes: float

    @property
    def bound(self) -> str:
        """One line for people."""
        return f"bound by {self.bound_by}, {self.resident_threadblocks} threadblocks on an SM"


def best_chain_config(
    chain: Chain, arch: Arch, without: Collection[B2bConfig] = ()
) -> tuple[B2bConfig, ChainPrediction]:
    """The legal configuration with the least predicted time; the first of equal ones.

    Those in `without` are passed over.

    Raises:
        NoLegalConfigError: there is none.
    """
    predicted = [
        (config, predict_chain(chain, config, arch))
        for config in enumerate_chain_configs(chain, arch)
        if config not in without
    ]
    if not predicted:
        raise NoLegalConfigError(
            f"all legal back-to-back configurations for {describe_chain(chain)} on {arch.name} "
            f"failed when they were measured. The layers can run as kernels of their own."
        )
    return min(predicted, key=lambda each: each[1].time_us)


def predict_chain(
    chain: Chain, config: B2bConfig, arch: Arch, constants: ModelConstants | None = None
) -> ChainPrediction:
    """The predicted time of `chain` in a legal `config` on `arch`."""
    c = constants or model_constants()
    resident = fitting_threadblocks(
        arch,
        registers=chain_registers_per_thread(chain, config),
        shared_bytes=chain_shared_memory_bytes(chain, config),
        warps=config.warps,
    )
    rows = implicit_gemm(chain.layers[0]).m
    blocks = math.ceil(rows / config.threadblock_m) * batch_of(chain)
    full, rest = divmod(blocks, arch.sm_count * resident)
    sm = _Multiprocessor(chain, config, arch, c)
    clocks = full * sm.clocks(resident)
    if rest:
        clocks += sm.clocks(-(-rest // arch.sm_count))
    outputs_bytes = _outputs_bytes(chain)
    loaded_bytes = sum(
        _steps(chain, config, index) * _loaded_bytes(config, index)
        for index in range(len(chain.layers))
    )
    l2_bytes = float(blocks * loaded_bytes + outputs_bytes)
    dram_bytes = float(_operands_bytes(chain) + outputs_bytes)
    levels_us = {
        "threadblocks": clocks / arch.boost_mhz,
        "l2": l2_bytes / (arch.l2_bytes_per_clock * arch.boost_mhz),
        "dram": dram_bytes / (arch.dram_gb_per_s * 1e3 * c.dram_fraction),
    }
    bound_by = max(levels_us, key=lambda level: levels_us[level])
    return ChainPrediction(
        time_us=c.launch_us + levels_us[bound_by],
        bound_by=bound_by if levels_us[bound_by] > c.launch_us else "launch",
        resident_threadblocks=resident,
        l2_bytes=l2_bytes,
        dram_bytes=dram_bytes,
    )


def _steps(chain: Chain, config: B2bConfig, index: int) -> int:
    layer, depth = chain.layers[index], config.layers[index].k
    if index == 0 and isinstance(layer.problem, Conv2d):
        return channel_steps(layer.problem, depth)
    return math.ceil(implicit_gemm(layer).k / depth)


def _loaded_bytes(config: B2bConfig, index: int) -> int:
    """Bytes that a threadblock takes from L2 in a step of a layer: of A only in the first."""
    tile = config.layers[index]
    rows = config.threadblock_m if index == 0 else 0
    return (rows + tile.n) * tile.k * F16_BYTES


@dataclass(frozen=True, slots=True)
class _Multiprocessor:
    """Times of threadblocks side by side on one SM, in clocks."""

    chain: Chain
    config: B2bConfig
    arch: Arch
    constants: ModelConstants

    def clocks(self, resident: int) -> float:
        """Of `resident` threadblocks, all layers of them."""
        return sum(self._layer(index, resident) for index in range(len(self.chain.layers)))

    def _layer(self, index: int, resident: int) -> float:
        chain, config, arch, c = self.chain, self.config, self.arch, self.constants
        layer, tiles = chain.layers[index], config.of_layer(index)
        # A later convolution's addresses are those of a matrix product.
        problem: Problem = layer.problem if index == 0 else implicit_gemm(layer)
        narrowest = problem.alignment_b if index else min(problem.alignment_a, problem.alignment_b)
        rate, loaded = bytes_per_clock(narrowest * F16_BYTES, arch, c), _loaded_bytes(config, index)
        step, _ = step_clocks(
            problem,
            tiles,
            arch,
            c,
            resident=resident,
            load_bytes_per_clock=rate,
            loaded_bytes=loaded,
        )
        steps = _steps(chain, config, index)
        begin = prologue_clocks(tiles, arch, resident, rate, loaded, steps=steps)
        if index + 1 == len(chain.layers):
            end = epilogue_clocks(problem, layer.epilogue, tiles, arch, c, resident=resident)
        else:
            end = self._inner_epilogue(index, resident)
        return begin + steps * step + end

    def _inner_epilogue(self, index: int, resident: int) -> float:
        """Arithmetic, its operands from L2, and the way through shared memory if there is one."""
        layer, tiles = self.chain.layers[index], self.config.of_layer(index)
        elements = resident * tiles.threadblock.m * tiles.threadblock.n
        is_shared = self.config.residence is Residence.SHARED_MEMORY
        staged = elements * F16_BYTES / _SHARED_BYTES_PER_CLOCK if is_shared else 0.0
        operands = elements * tensor_operand_bytes(layer.epilogue)
        # An accumulator's fragment holds pairs of columns.
        rate = bytes_per_clock(2 * F16_BYTES, self.arch, self.constants)
        arithmetic = arithmetic_clocks(layer.epilogue, elements, self.arch, self.constants)
        return staged + operands / rate + arithmetic


def _outputs_bytes(chain: Chain) -> int:
    """Bytes of the last layer's D, and of every layer's full-tensor operands."""
    last = chain.layers[-1]
    gemm = implicit_gemm(last)
    total = gemm.m * gemm.n * output_bytes_per_element(last.problem, last.epilogue)
    for layer in chain.layers[:-1]:
        inner = implicit_gemm(layer)
        total += inner.m * inner.n * tensor_operand_bytes(layer.epilogue)
    return batch_of(chain) * total


def _operands_bytes(chain: Chain) -> int:
    """Bytes of A and of every B, each once: all threadblocks read the same B at about one time."""
    first, gemm = chain.layers[0].problem, implicit_gemm(chain.layers[0])
    a_bytes = gemm.m * gemm.k * F16_BYTES
    if isinstance(first, Conv2d):
        a_bytes = activation_bytes(first)
    gemms = map(implicit_gemm, chain.layers)
    return batch_of(chain) * (a_bytes + sum(g.k * g.n * F16_BYTES for g in gemms))
