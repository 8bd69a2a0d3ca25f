"""The bytes that a launch moves at each level of memory, and its arithmetic intensity there.

The levels form a hierarchical roofline: shared memory (per SM), L2 (shared by all SMs), DRAM.
Source: Yang, Kurth, Williams, Hierarchical Roofline Analysis for GPUs, 2020.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from boltgen.arch import Arch
from boltgen.families.columns import ceil_div, least, most, where
from boltgen.families.constants import ModelConstants
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traits import ConvIterator, conv_iterator, groups_of
from boltgen.families.roofline import output_bytes_per_element
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.convolution import Convolution
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem

_F32_BYTES = DType.F32.size_bytes


class Tiling(NamedTuple):
    """The cover of a problem by `blocks` threadblock tiles, each at most `steps` of K deep.

    `rows` by `columns` tiles cover the (M, N) output of `gemm`, one of `batch` products or groups,
    or of both of a pair. All threadblocks together do `all_steps`, and read operands in
    `read_steps`: a convolution's slices may go beyond its channels, where they multiply zeros.
    """

    gemm: Gemm
    batch: int
    rows: int
    columns: int
    steps: int
    all_steps: int
    read_steps: int
    blocks: int


class Traffic(NamedTuple):
    """The bytes of a whole launch; `flops` counts useful operations."""

    flops: int
    shared_bytes: float
    l2_bytes: float
    dram_bytes: float

    @property
    def intensity(self) -> dict[str, float]:
        """FLOP per byte at each level."""
        return {
            "shared memory": self.flops / self.shared_bytes,
            "l2": self.flops / self.l2_bytes,
            "dram": self.flops / self.dram_bytes,
        }


def tiling(problem: Problem, config: Tiles) -> Tiling:
    """Return the threadblocks of a launch."""
    gemm, batch = problem.gemm.unpaired, problem.batch
    if isinstance(problem, Conv2d) and problem.groups > 1:
        gemm, batch = problem.group.gemm, problem.groups
    tile = config.threadblock
    rows, columns = ceil_div(gemm.m, tile.m), ceil_div(gemm.n, tile.n)
    tiles, blocks = rows * columns * batch, rows * columns * batch * config.split_k
    if _goes_through_channels(problem):
        whole = channel_steps(problem, tile.k)
        steps = channel_steps(problem, tile.k, slices=config.split_k)
        all_steps = blocks * steps
    else:
        whole = ceil_div(gemm.k, tile.k)
        steps = ceil_div(whole, config.split_k)
        all_steps = tiles * whole
    return Tiling(
        gemm=gemm,
        batch=batch,
        rows=rows,
        columns=columns,
        steps=steps,
        all_steps=all_steps,
        read_steps=tiles * whole,
        blocks=blocks,
    )


def _goes_through_channels(problem: Problem) -> TypeGuard[Convolution]:
    """Return whether a step of K belongs to one filter position of a convolution."""
    if not isinstance(problem, Convolution):
        return False
    return conv_iterator(problem) is not ConvIterator.FIXED_CHANNELS


def channel_steps(problem: Convolution, depth: int, *, slices: int = 1) -> int:
    """Return the steps of K if each covers `depth` channels of one filter position.

    Each of several slices of K has a part of the channels, at all filter positions.
    Source: cutlass/conv/conv2d_problem_size.h, implicit_gemm_k_iterations.
    """
    channels = problem.c // problem.groups
    steps: int = problem.filter_positions * ceil_div(ceil_div(channels, slices), depth)
    return steps


def operand_bytes_per_step(config: Tiles, in_dtype: DType) -> int:
    """Return the bytes of A and B that a threadblock loads from L2 per step of K."""
    tile = config.threadblock
    return (tile.m + tile.n) * tile.k * in_dtype.size_bytes


def shared_bytes_per_step(config: Tiles, in_dtype: DType) -> int:
    """Return the bytes through shared memory per step: operands in once, and out to every warp."""
    warp = config.warp
    # If the warps of a threadblock divide K, each warp reads only its own part of K.
    read = config.warps * (warp.m + warp.n) * warp.k * in_dtype.size_bytes
    return read + operand_bytes_per_step(config, in_dtype)


def traffic(
    problem: Problem,
    epilogue: ElementwiseGraph,
    config: Tiles,
    arch: Arch,
    constants: ModelConstants,
    *,
    tiles: Tiling,
    resident: int,
) -> Traffic:
    """Return the bytes of a launch with `resident` threadblocks on each SM."""
    tile = config.threadblock
    # Tiles are complete in shared memory; elements beyond the edges do not pass through L2.
    staged = 2 * tile.m * tile.n * problem.acc_dtype.size_bytes
    rows = tiles.batch * tiles.gemm.m
    columns = problem.gemm.n // groups_of(problem)
    out_bytes = rows * columns * output_bytes_per_element(problem, epilogue)
    partial_bytes = 2 * (config.split_k - 1) * rows * tiles.gemm.n * _F32_BYTES
    return Traffic(
        flops=problem.flops,
        shared_bytes=tiles.all_steps * shared_bytes_per_step(config, problem.in_dtype)
        + tiles.blocks * staged,
        l2_bytes=tiles.read_steps * operand_bytes_per_step(config, problem.in_dtype)
        + out_bytes
        + partial_bytes,
        dram_bytes=out_bytes
        + _operand_dram_bytes(problem, config, arch, constants, tiles=tiles, resident=resident),
    )


def _operand_dram_bytes(
    problem: Problem,
    config: Tiles,
    arch: Arch,
    constants: ModelConstants,
    *,
    tiles: Tiling,
    resident: int,
) -> float:
    """Return the bytes of A and B from DRAM: each once, and again if L2 has not kept them.

    Tiles are visited down M, `swizzle` columns side by side (a group). The tiles of a wave, which
    run at once, share their reads as far as they do not drift apart. Between waves L2 keeps the
    part of an operand that fits into its share.
    """
    gemm, swizzle, size = tiles.gemm, config.swizzle, problem.in_dtype.size_bytes
    a_batch, b_batch = _copies(problem)
    a_bytes, b_bytes = problem.a_bytes // a_batch, problem.b_bytes // b_batch
    kept_bytes = constants.l2_kept_fraction * arch.l2_bytes
    wave = arch.sm_count * resident
    group = least(swizzle, tiles.columns) * tiles.rows
    groups_at_once = most(1, wave // (group * config.split_k))
    passes_over_a = ceil_div(tiles.columns, swizzle * groups_at_once)
    waves_per_group = ceil_div(group * config.split_k, wave)
    group_bytes = least(swizzle * config.threadblock.n, gemm.n) * gemm.k * size
    a_reads = 1 + (passes_over_a - 1) * _missed(a_bytes, kept_bytes)
    b_reads = 1 + (waves_per_group - 1) * _missed(group_bytes, kept_bytes)
    shared = a_batch * a_bytes * a_reads + b_batch * b_bytes * b_reads
    # A pixel is read again at every position of the filter, and is still in L2.
    visits = problem.filter_positions if isinstance(problem, Convolution) else 1
    lost = _drifted_apart(
        config, size, constants, kept_bytes, tiles=tiles, wave=wave, visits=visits
    )
    tile = config.threadblock
    alone = tiles.read_steps * (tile.m / visits + tile.n) * tile.k * size
    read: float = shared + lost * most(0.0, alone * _line_factor(config, size) - shared)
    return read


def _drifted_apart(
    config: Tiles,
    size_bytes: int,
    constants: ModelConstants,
    kept_bytes: float,
    *,
    tiles: Tiling,
    wave: int,
    visits: int,
) -> float:
    """Return the share of operands that threadblocks of a wave read without sharing.

    Nothing keeps threadblocks in step: each step of K increases the distance between them, until L2
    has lost data that one has loaded when the next one needs it. Lost data makes L2 turn over
    faster, so the change is abrupt.
    """
    tile, all_tiles = config.threadblock, tiles.rows * tiles.columns
    at_once = least(wave, all_tiles)
    groups = ceil_div(at_once, config.swizzle * tiles.rows)
    columns = least(tiles.columns, config.swizzle * groups)
    rows = least(tiles.rows, ceil_div(at_once, columns))
    # Bytes per element of K if all threadblocks were in step.
    wave_bytes = (rows * tile.m / visits + columns * tile.n) * size_bytes
    distance_bytes = constants.drift_per_step * tiles.steps * wave_bytes
    lost = 1.0 / (1.0 + ((kept_bytes / distance_bytes) ** 2) ** (_ABRUPTNESS / 2))
    # A single tile has no other tile to share with.
    is_kept = (distance_bytes * _SAFE <= kept_bytes) | (all_tiles == 1)
    share: float = where(is_kept, 0.0, lost)
    return share


# Source: the 2080 Ti's table in benchmarks/data: reuse falls from all to half within a tenth of K.
_ABRUPTNESS = 4
# At this fraction of the bytes that L2 keeps, less than half a percent would be lost.
_SAFE = 4
# Source: NVIDIA, CUDA C++ Best Practices Guide: lines of 128 bytes, sectors of 32.
_LINE_BYTES = 128


def _line_factor(config: Tiles, size_bytes: int) -> float:
    """Return the bytes that DRAM moves per byte of an operand that is not shared.

    A step of 32 reads half a line of 128 bytes from each row. Half a line costs DRAM about as much
    as a whole line, probably because each row of the tile opens a page either way.
    """
    factor: float = most(1.0, _LINE_BYTES / (config.threadblock.k * size_bytes))
    return factor


def _copies(problem: Problem) -> tuple[int, int]:
    """Return how many matrices A and B are; each group has its own channels."""
    if isinstance(problem, Gemm):
        batch = problem.batch
        return (batch if problem.a_batched else 1), (batch if problem.b_batched else 1)
    return groups_of(problem), groups_of(problem)


def _missed(wanted_bytes: float, kept_bytes: float) -> float:
    """Return the share of an operand that a cache of this size has lost when it is read again."""
    missed: float = most(0.0, 1.0 - kept_bytes / wanted_bytes)
    return missed
