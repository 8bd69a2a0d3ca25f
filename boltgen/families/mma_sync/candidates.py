"""Enumerate the configurations worth considering for a problem: tens of kernels per architecture.

Arrow: `candidates`, from a problem to legal configurations. The rules come from Bolt, section
3.2.2: large warp tiles within the register file; four or eight warps; small threadblocks for small
problems; swizzles; stages by architecture; and split-K for deep K with few tiles. Additions from
others' measurements are marked in the code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.mma_sync.config import Tiles, column
from boltgen.families.mma_sync.depths import legal_stages
from boltgen.families.mma_sync.legality import (
    WARPS,
    extent_violations,
    kernel_violations,
    layer_violations,
    result_violations,
    tile_violations,
)
from boltgen.families.mma_sync.shapes import depths_of, has_instruction, instruction_of
from boltgen.families.mma_sync.traits import KernelTraits, groups_of, kernel_traits
from boltgen.families.space import Knob, Shape, Space
from boltgen.ir.dtypes import DType
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer

# Extents between powers of two fill a last wave, or a register file, which powers of two would
# leave half empty.
TILE_EXTENTS = (16, 32, 64, 96, 128, 160, 192, 256)
WARP_M = (16, 32, 48, 64, 80, 96)
WARP_N = (16, 32, 48, 64, 80, 96, 128)
SWIZZLES = (1, 2, 4, 8)
SLICES = (1, 2, 3, 4, 6, 8, 12, 16)
# The knobs that are launch arguments.
LAUNCHED = frozenset({"swizzle", "split_k"})
_REGISTER_BYTES = 4

# Smaller warp tiles load more from shared memory than the tensor cores have time for: in 32x32 each
# loaded element is used 32 times.
_LEAST_WARP_TILE = 32 * 32
# One for each scheduler of an SM.
_SCHEDULERS = 4
# A tile four times as long as wide loads 1.25 times the operands of a square tile of equal area.
_MOST_ELONGATED = 4
# More bytes of a row of K in flight only lower occupancy: the latency of memory is covered.
_MOST_IN_FLIGHT_BYTES = 384
# The latency while all SMs copy, relative to the latency of a single copy. An estimate.
_LOADED_LATENCY = 2
# Every layout and alignment has a legal kernel of this extent; smaller ones are not always legal.
_ALWAYS_FITS = 32
# A slice of K must have several times the steps of the pipeline's prologue.
_MIN_STEPS_PER_SLICE = 4


def enumerate_configs(problem: Problem, arch: Arch) -> tuple[Tiles, ...]:
    """Return all legal configurations worth considering, in a fixed order."""
    gemm = problem.gemm.unpaired
    kernels = kernel_configs(kernel_traits(problem), arch)
    return tuple(
        config
        for kernel in kernels
        # For small problems a tile of over twice the problem's extent computes mostly padding.
        if _fits(kernel.threadblock.m, gemm.m) and _fits(kernel.threadblock.n, gemm.n)
        for config in _launches(problem, kernel, arch)
    )


@lru_cache(maxsize=256)
def kernel_configs(traits: KernelTraits, arch: Arch) -> tuple[Tiles, ...]:
    """Return the configurations of kernels with these traits, without swizzle and split-K."""
    found: list[Tiles] = []
    if not has_instruction(traits.in_dtype, arch):
        return ()
    instruction = instruction_of(traits.in_dtype, arch)
    for tile in _tiles(traits, arch):
        for warps, stages in itertools.product(_warps(tile, arch), _stages(tile, traits, arch)):
            legal = [
                config
                for config in _warp_splits(tile, warps, stages, instruction)
                if not kernel_violations(traits, config, arch)
            ]
            # Within the register file, the best warp tile loads least per multiplication.
            if legal:
                found.append(min(legal, key=lambda config: (config.warp.m + config.warp.n, config)))
    return tuple(found)


@lru_cache(maxsize=256)
def legal_kernels(traits: KernelTraits, arch: Arch) -> tuple[Tiles, ...]:
    """Return every legal configuration of the knobs' values, without swizzle and split-K.

    They include configurations that are not worth considering.
    """
    counts = stage_counts(traits, arch)
    if not has_instruction(traits.in_dtype, arch):
        return ()
    splits, of_all = _every_split(arch, traits.in_dtype)
    legal = zip(splits, legal_stages(traits, splits, of_all, counts, arch), strict=True)
    found: list[Tiles] = []
    for _, alike in itertools.groupby(legal, lambda each: (each[0].threadblock, each[0].warps)):
        group = [(split, depths) for split, depths in alike if depths]
        for stages in counts:
            found += [replace(split, stages=stages) for split, depths in group if stages in depths]
    return tuple(found)


@lru_cache(maxsize=32)
def _every_split(arch: Arch, in_dtype: DType) -> tuple[tuple[Tiles, ...], Tiles]:
    """Return every division of tiles among warps, sorted by tile, warps and warp, and their column.

    Tiles that do not divide each other are left out. The depth of the pipeline has no meaning.
    """
    found: list[Tiles] = []
    instruction = instruction_of(in_dtype, arch)
    for m, n, k in itertools.product(TILE_EXTENTS, TILE_EXTENTS, depths_of(in_dtype)):
        splits = _splits(Shape(m, n, k), arch.min_stages, instruction)
        whole = [each for each in splits if not any(tile_violations(each, arch, in_dtype))]
        found += sorted(whole, key=lambda each: (each.warps, each.warp))
    return tuple(found), column(found)


def _tiles(traits: KernelTraits, arch: Arch) -> Iterator[Shape]:
    # Accumulators take at most half of the register file; operands and addresses need the rest.
    most = arch.registers_per_sm * _REGISTER_BYTES // 2 // traits.acc_dtype.size_bytes
    depths = depths_of(traits.in_dtype)
    for m, n, k in itertools.product(TILE_EXTENTS, TILE_EXTENTS, depths):
        if max(m, n) > _MOST_ELONGATED * min(m, n) or m * n > most:
            continue
        # One extent that is no power of two is enough to fill a last wave.
        if not (is_power_of_two(m) or is_power_of_two(n)):
            continue
        # Tiles with few multiplications per loaded element need long rows.
        if m * n < _LEAST_WARP_TILE and k < max(depths):
            continue
        yield Shape(m, n, k)


def is_power_of_two(extent: int) -> bool:
    """Return whether an extent is a power of two."""
    return extent & (extent - 1) == 0


def _warps(tile: Shape, arch: Arch) -> Iterator[int]:
    """Yield numbers of warps: one per scheduler if there is enough work, or twice as many.

    Without asynchronous copies, warps replace stages: then also four per scheduler.
    """
    room = max(1, tile.m * tile.n // _LEAST_WARP_TILE)
    most = _SCHEDULERS * (4 if arch.max_stages == 2 else 2)
    for warps in WARPS:
        if min(_SCHEDULERS, room) <= warps <= min(most, room):
            yield warps


def _stages(tile: Shape, traits: KernelTraits, arch: Arch) -> Iterator[int]:
    """Return depths of the pipeline: the least that covers memory's latency, and one less.

    One less leaves shared memory to other threadblocks. Source: Little's law.
    """
    counts = [
        stages
        for stages in stage_counts(traits, arch)
        if stages == 2 or stages * tile.k * traits.in_dtype.size_bytes <= _MOST_IN_FLIGHT_BYTES
    ]
    stage_bytes = (tile.m + tile.n) * tile.k * traits.in_dtype.size_bytes
    l2_bytes_per_clock = arch.l2_bytes_per_clock / arch.sm_count
    needed_bytes = _LOADED_LATENCY * arch.memory_latency_clocks * l2_bytes_per_clock
    covering = [stages for stages in counts if (stages - 1) * stage_bytes >= needed_bytes]
    least = min(covering, default=counts[-1])
    return (stages for stages in counts if stages in (least - 1, least))


def _warp_splits(tile: Shape, warps: int, stages: int, instruction: Shape) -> Iterator[Tiles]:
    """Return the divisions of the tile among `warps` warps."""
    return (config for config in _splits(tile, stages, instruction) if config.warps == warps)


def _splits(tile: Shape, stages: int, instruction: Shape) -> Iterator[Tiles]:
    """Yield the divisions of the tile among numbers of warps that a threadblock may have."""
    for warp_m, warp_n in itertools.product(WARP_M, WARP_N):
        whole = tile.m % warp_m == tile.n % warp_n == 0
        if whole and tile.m * tile.n // (warp_m * warp_n) in WARPS:
            yield Tiles(
                threadblock=tile,
                warp=Shape(warp_m, warp_n, tile.k),
                instruction=instruction,
                stages=stages,
            )


def _fits(tile: int, extent: int) -> bool:
    return tile <= max(_ALWAYS_FITS, 2 * extent - 1)


def _launches(problem: Problem, kernel: Tiles, arch: Arch) -> Iterator[Tiles]:
    """`kernel` with the swizzles and slices of K that make sense for the extents."""
    gemm, groups = problem.gemm.unpaired, groups_of(problem)
    rows = math.ceil(gemm.m / kernel.threadblock.m)
    columns = math.ceil(gemm.n // groups / kernel.threadblock.n)
    slices = [1]
    # Slices cost a reduction: only where the tiles alone cannot fill the SMs.
    if problem.batch == groups == 1 and rows * columns < arch.sm_count:
        steps = math.ceil(gemm.k / kernel.threadblock.k)
        most = min(steps // _MIN_STEPS_PER_SLICE, 2 * arch.sm_count // (rows * columns))
        slices += [count for count in SLICES if 1 < count <= most]
    for swizzle in SWIZZLES:
        # CUTLASS lowers a swizzle beyond the number of tiles along N; with one row of tiles a
        # swizzle changes nothing. Source: cutlass/gemm/threadblock/threadblock_swizzle.h,
        # get_log_tile.
        if swizzle > 1 and (columns < swizzle or rows == 1):
            break
        for count in slices:
            config = replace(kernel, swizzle=swizzle, split_k=count)
            if not any(extent_violations(problem, config)):
                yield config


def _tried(problem: Problem, arch: Arch) -> Iterator[Tiles]:
    """Yield all configurations that were considered, legal or not."""
    traits = kernel_traits(problem)
    if not has_instruction(traits.in_dtype, arch):
        return
    instruction = instruction_of(traits.in_dtype, arch)
    for tile, warps, stages in itertools.product(
        _tiles(traits, arch), WARPS, stage_counts(traits, arch)
    ):
        yield from _warp_splits(tile, warps, stages, instruction)


def stage_counts(traits: KernelTraits, arch: Arch) -> tuple[int, ...]:
    """Return the depths of the software pipeline that are worth considering."""
    # Two stages cannot overlap a copy with its use, so they are used only without cp.async.
    is_narrow = min(traits.alignment_a, traits.alignment_b) * traits.in_dtype.size_bytes < 4
    if is_narrow or not arch.has_async_copies:
        return (2,)
    return tuple(range(max(3, arch.min_stages), arch.max_stages + 1))


def knobs_for(problem: Problem, arch: Arch) -> tuple[Knob, ...]:
    """Return the knobs of the 2.x kernels for a problem, in a fixed order."""
    stages = stage_counts(kernel_traits(problem), arch)
    slices = SLICES[:1] if max(problem.batch, groups_of(problem)) > 1 else SLICES
    return (
        Knob("threadblock_m", TILE_EXTENTS, 128),
        Knob("threadblock_n", TILE_EXTENTS, 128),
        Knob("threadblock_k", depths_of(problem.in_dtype), depths_of(problem.in_dtype)[0]),
        Knob("warp_m", WARP_M, 64),
        Knob("warp_n", WARP_N, 64),
        Knob("stages", stages, stages[0]),
        Knob("swizzle", SWIZZLES, 1),
        Knob("split_k", slices, 1),
    )


def space_of(layer: Layer, arch: Arch) -> Space[Tiles]:
    """Return the whole space of a layer."""
    problem = layer.problem

    def fitting(configs: Iterable[Tiles]) -> tuple[Tiles, ...]:
        return tuple(
            config for config in configs if not any(result_violations(layer.epilogue, config))
        )

    def config_at(point: Mapping[str, int]) -> Tiles:
        depth = point["threadblock_k"]
        return Tiles(
            threadblock=Shape(point["threadblock_m"], point["threadblock_n"], depth),
            warp=Shape(point["warp_m"], point["warp_n"], depth),
            instruction=instruction_of(problem.in_dtype, arch),
            stages=point["stages"],
            swizzle=point["swizzle"],
            split_k=point["split_k"],
        )

    return Space(
        family="mma_sync",
        knobs=knobs_for(problem, arch),
        config_at=config_at,
        point_of=_point,
        listed=lambda: fitting(enumerate_configs(problem, arch)),
        tried=lambda: fitting(_tried(problem, arch)),
        broken=lambda config: layer_violations(layer, config, arch),
        launched=LAUNCHED,
        kernels=lambda: fitting(
            kernel
            for kernel in legal_kernels(kernel_traits(problem), arch)
            if not any(extent_violations(problem, kernel))
        ),
    )


def _point(config: Tiles) -> dict[str, int]:
    return {
        "threadblock_m": config.threadblock.m,
        "threadblock_n": config.threadblock.n,
        "threadblock_k": config.threadblock.k,
        "warp_m": config.warp.m,
        "warp_n": config.warp.n,
        "stages": config.stages,
        "swizzle": config.swizzle,
        "split_k": config.split_k,
    }
