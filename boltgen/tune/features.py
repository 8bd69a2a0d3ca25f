"""A candidate as numbers, for cost models that learn.

Besides the knobs these are what decides a kernel's time, as the analytical model sees it: how much
work there is, how it is cut into tiles and waves, and what it takes of a multiprocessor. Extents
and times act by their ratios, so their logarithms are given.
"""

from __future__ import annotations

import math

from boltgen.arch import Arch
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.ir.problem import BatchedGemm, Conv2d, Problem
from boltgen.space.config import Cutlass2Config
from boltgen.space.knobs import ConfigSpace
from boltgen.space.resources import registers_per_thread, shared_memory_bytes
from boltgen.tune.cost_model import predict

_DERIVED = (
    "log2_m",
    "log2_n",
    "log2_k",
    "log2_flops",
    "log2_tiles",
    "steps_per_slice",
    "useful_fraction",
    "epilogue_nodes",
    "epilogue_tensors",
    "warps",
    "shared_memory_fraction",
    "registers_fraction",
    "occupancy",
    "waves",
    "log2_predicted_us",
)


def feature_names(space: ConfigSpace) -> tuple[str, ...]:
    """What each number of `features` is."""
    return tuple(knob.name for knob in space.knobs) + _DERIVED


def features(
    epilogue: ElementwiseGraph, config: Cutlass2Config, space: ConfigSpace
) -> tuple[float, ...]:
    """A legal configuration of `space` with an epilogue, as numbers in the order of their names.

    The knobs lie in 0 to 1.
    """
    problem, arch = space.problem, space.arch
    gemm = problem.implicit_gemm if isinstance(problem, Conv2d) else problem
    tile = config.threadblock
    rows, columns = math.ceil(gemm.m / tile.m), math.ceil(gemm.n / tile.n)
    steps = math.ceil(gemm.k / tile.k)
    predicted = predict(problem, epilogue, config, arch)
    derived = (
        math.log2(gemm.m),
        math.log2(gemm.n),
        math.log2(gemm.k),
        math.log2(problem.flops),
        math.log2(rows * columns * _batch(problem) * config.split_k),
        steps / config.split_k,
        (gemm.m * gemm.n * gemm.k) / (rows * tile.m * columns * tile.n * steps * tile.k),
        float(len(epilogue.nodes)),
        float(sum(load.kind is LoadKind.TENSOR for load in epilogue.loads)),
        float(config.warps),
        *_shares(problem, config, arch),
        predicted.occupancy,
        predicted.waves,
        math.log2(predicted.time_us),
    )
    return (*space.encode(config), *derived)


def _batch(problem: Problem) -> int:
    return problem.batch if isinstance(problem, BatchedGemm) else 1


def _shares(problem: Problem, config: Cutlass2Config, arch: Arch) -> tuple[float, float]:
    """Shared memory and registers over what a threadblock and a thread may have."""
    shared = shared_memory_bytes(config, problem.acc_dtype) / arch.shared_memory_per_cta_bytes
    registers = registers_per_thread(config, problem.acc_dtype) / arch.max_registers_per_thread
    return shared, registers
