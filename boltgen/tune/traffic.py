"""Bytes that a launch moves at each level of memory, and the arithmetic intensity there.

The levels are those of a hierarchical roofline: shared memory (per SM), L2 (shared by all SMs),
DRAM. Source: Yang, Kurth, Williams, Hierarchical Roofline Analysis for GPUs, 2020.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from boltgen.arch import Arch
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.space.config import Cutlass2Config
from boltgen.space.kernel import ConvIterator, conv_iterator
from boltgen.tune.model_constants import ModelConstants

F16_BYTES = DType.F16.size_bytes
_F32_BYTES = DType.F32.size_bytes


class Tiling(NamedTuple):
    """How threadblock tiles cover a problem: `blocks` of them, at most `steps` of K deep each.

    `rows` by `columns` tiles cover the (M, N) output of one of `batch` products. All threadblocks
    together do `all_steps`.
    """

    gemm: Gemm
    batch: int
    rows: int
    columns: int
    steps: int
    all_steps: int
    blocks: int


class Traffic(NamedTuple):
    """Bytes of a whole launch; `flops` are the useful ones."""

    flops: int
    shared_bytes: float
    l2_bytes: float
    dram_bytes: float

    @property
    def intensity(self) -> dict[str, float]:
        """FLOP for each byte at each level."""
        return {
            "shared memory": self.flops / self.shared_bytes,
            "l2": self.flops / self.l2_bytes,
            "dram": self.flops / self.dram_bytes,
        }


@lru_cache(maxsize=1024)
def as_gemm(problem: Problem) -> tuple[Gemm, int]:
    """The matrix product that computes the problem, and how often it is done."""
    match problem:
        case Conv2d():
            return problem.implicit_gemm, 1
        case BatchedGemm(batch=batch):
            return problem.gemm, batch
        case Gemm():
            return problem, 1


def tiling(problem: Problem, config: Cutlass2Config) -> Tiling:
    """The threadblocks of a launch."""
    gemm, batch = as_gemm(problem)
    tile = config.threadblock
    rows, columns = math.ceil(gemm.m / tile.m), math.ceil(gemm.n / tile.n)
    steps = _steps_of_k(problem, gemm, tile.k)
    return Tiling(
        gemm=gemm,
        batch=batch,
        rows=rows,
        columns=columns,
        steps=math.ceil(steps / config.split_k),
        all_steps=rows * columns * batch * steps,
        blocks=rows * columns * batch * config.split_k,
    )


def _steps_of_k(problem: Problem, gemm: Gemm, depth: int) -> int:
    """Steps of K that are `depth` deep: a convolution's are whole within one filter position.

    Source: cutlass/conv/conv2d_problem_size.h, implicit_gemm_k_iterations.
    """
    if isinstance(problem, Conv2d) and conv_iterator(problem) is not ConvIterator.FIXED_CHANNELS:
        return channel_steps(problem, depth)
    return math.ceil(gemm.k / depth)


def channel_steps(problem: Conv2d, depth: int) -> int:
    """Steps of K where each goes through `depth` channels of one filter position."""
    return problem.r * problem.s * math.ceil(problem.c / depth)


def operand_bytes_per_step(config: Cutlass2Config) -> int:
    """Bytes of A and B that a threadblock takes from L2 in one step of K."""
    tile = config.threadblock
    return (tile.m + tile.n) * tile.k * F16_BYTES


def shared_bytes_per_step(config: Cutlass2Config) -> int:
    """Bytes through shared memory in one step: operands in once, and out to every warp."""
    warp = config.warp
    # A warp covers its own part of K where the warps of a threadblock divide it.
    read = config.warps * (warp.m + warp.n) * warp.k * F16_BYTES
    return read + operand_bytes_per_step(config)


@lru_cache(maxsize=1024)
def tensor_operand_bytes(epilogue: ElementwiseGraph) -> int:
    """Bytes of full tensors that the epilogue reads for each element of the output."""
    tensors = (load for load in epilogue.loads if load.kind is LoadKind.TENSOR)
    return sum(load.dtype.size_bytes for load in tensors)


def output_bytes_per_element(problem: Problem, epilogue: ElementwiseGraph) -> int:
    """Bytes between the epilogue and L2 for each element: the output and full-tensor operands."""
    return problem.out_dtype.size_bytes + tensor_operand_bytes(epilogue)


def traffic(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Cutlass2Config,
    arch: Arch,
    constants: ModelConstants,
    *,
    tiles: Tiling,
    resident: int,
) -> Traffic:
    """The bytes of a launch whose SMs hold `resident` threadblocks each."""
    tile = config.threadblock
    # Tiles are whole in shared memory; nothing beyond the edges moves through L2.
    staged = 2 * tile.m * tile.n * problem.acc_dtype.size_bytes
    outputs = tiles.batch * tiles.gemm.m * tiles.gemm.n
    out_bytes = outputs * output_bytes_per_element(problem, epilogue)
    partial_bytes = 2 * (config.split_k - 1) * outputs * _F32_BYTES
    return Traffic(
        flops=problem.flops,
        shared_bytes=tiles.all_steps * shared_bytes_per_step(config) + tiles.blocks * staged,
        l2_bytes=tiles.all_steps * operand_bytes_per_step(config) + out_bytes + partial_bytes,
        dram_bytes=out_bytes
        + _operand_dram_bytes(problem, config, arch, constants, tiles=tiles, resident=resident),
    )


def _operand_dram_bytes(
    problem: Problem,
    config: Cutlass2Config,
    arch: Arch,
    constants: ModelConstants,
    *,
    tiles: Tiling,
    resident: int,
) -> float:
    """Bytes of A and B from DRAM: once, and again where L2 has not kept them.

    Tiles are visited down M, `swizzle` columns side by side (a group). Those that run at once, a
    wave, share what they read. Between waves L2 keeps of an operand what fits its share.
    """
    gemm, swizzle = tiles.gemm, config.swizzle
    a_bytes, b_bytes = gemm.m * gemm.k * F16_BYTES, gemm.k * gemm.n * F16_BYTES
    if isinstance(problem, Conv2d):
        a_bytes = activation_bytes(problem)
    kept_bytes = constants.l2_kept_fraction * arch.l2_bytes
    wave = arch.sm_count * resident
    group = min(swizzle, tiles.columns) * tiles.rows
    groups_at_once = max(1, wave // (group * config.split_k))
    passes_over_a = math.ceil(tiles.columns / (swizzle * groups_at_once))
    waves_per_group = math.ceil(group * config.split_k / wave)
    group_bytes = min(swizzle * config.threadblock.n, gemm.n) * gemm.k * F16_BYTES
    a_reads = 1 + (passes_over_a - 1) * _missed(a_bytes, kept_bytes)
    b_reads = 1 + (waves_per_group - 1) * _missed(group_bytes, kept_bytes)
    a_batch = tiles.batch if not isinstance(problem, BatchedGemm) or problem.a_batched else 1
    b_batch = tiles.batch if not isinstance(problem, BatchedGemm) or problem.b_batched else 1
    return a_batch * a_bytes * a_reads + b_batch * b_bytes * b_reads


def activation_bytes(problem: Conv2d) -> int:
    """Bytes of the pixels that the filter touches, each once; strides may leave some out."""
    rows = min(problem.h, problem.p * problem.r)
    columns = min(problem.w, problem.q * problem.s)
    return problem.n * rows * columns * problem.c * F16_BYTES


def _missed(wanted_bytes: float, kept_bytes: float) -> float:
    """The share of an operand that a cache of that size has lost when it is read again."""
    return max(0.0, 1.0 - kept_bytes / wanted_bytes)
