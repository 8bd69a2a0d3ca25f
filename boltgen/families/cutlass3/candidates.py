"""Enumerate the configurations of `cutlass3` that are worth considering for a workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from boltgen.arch import Arch
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule, Scheduler
from boltgen.families.cutlass3.legality import (
    CLUSTERS,
    MOST_ACCUMULATORS,
    MOST_IN_CLUSTER,
    RASTERS,
    SCHEDULERS,
    SCHEDULES,
    SLICES,
    SWIZZLES,
    TILE_M,
    TILE_N,
    accumulator_registers,
    at_once,
    blocks_at_once,
    least_steps,
    violations,
    whole_tiles,
)
from boltgen.families.space import Knob, Shape, Space
from boltgen.families.wgmma import steps, tile_depth
from boltgen.ir.dtypes import DType
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer

# The widths that are considered for every problem. Tiles of other widths must fill the device a
# twentieth better than larger tiles, and at most a quarter worse than the best.
_USUAL_N, _WORTH_A_WIDTH, _NEAR = (64, 128, 192, 256), 0.95, 1.25


def space_of(layer: Layer, arch: Arch) -> Space[Cutlass3Config]:
    """Return the space of tiles, clusters, schedules, schedulers, and launch arguments."""

    depth = tile_depth(layer.problem.in_dtype)

    def config_at(point: Mapping[str, int]) -> Cutlass3Config:
        return Cutlass3Config(
            threadblock=Shape(point["threadblock_m"], point["threadblock_n"], depth),
            schedule=SCHEDULES[point["schedule"] - 1],
            cluster_m=point["cluster_m"],
            cluster_n=point["cluster_n"],
            scheduler=SCHEDULERS[point["scheduler"] - 1],
            swizzle=point["swizzle"],
            raster=RASTERS[point["raster"] - 1],
            split_k=point["split_k"],
        )

    def tried() -> Iterator[Cutlass3Config]:
        shapes = itertools.product(TILE_M, TILE_N)
        for (m, n), cluster in itertools.product(shapes, itertools.product(CLUSTERS, CLUSTERS)):
            yield from _kernels(Shape(m, n, depth), *cluster)

    def listed() -> Iterator[Cutlass3Config]:
        tiling = _Tiling(layer.problem, arch)
        for tile, cluster_m, cluster_n in tiling.sensible():
            for config in _kernels(tile, cluster_m, cluster_n):
                # Checked second, because the rules take longer.
                if tiling.has_part_of_a_wave(config) and not violations(layer, config, arch):
                    yield from tiling.launches(config)

    return Space(
        family=Cutlass3Config.family,
        knobs=(
            Knob("threadblock_m", TILE_M, 128),
            Knob("threadblock_n", TILE_N, 128),
            Knob("schedule", (1, 2), 2),
            Knob("cluster_m", CLUSTERS, 1),
            Knob("cluster_n", CLUSTERS, 1),
            Knob("scheduler", (1, 2), 1),
            Knob("swizzle", SWIZZLES, 1),
            Knob("raster", (1, 2), 1),
            Knob("split_k", SLICES, 1),
        ),
        config_at=config_at,
        point_of=_point,
        listed=listed,
        tried=tried,
        broken=lambda config: violations(layer, config, arch),
        launched=frozenset({"swizzle", "raster", "split_k"}),
    )


def _point(config: Cutlass3Config) -> dict[str, int]:
    return {
        "threadblock_m": config.threadblock.m,
        "threadblock_n": config.threadblock.n,
        "schedule": SCHEDULES.index(config.schedule) + 1,
        "cluster_m": config.cluster_m,
        "cluster_n": config.cluster_n,
        "scheduler": SCHEDULERS.index(config.scheduler) + 1,
        "swizzle": config.swizzle,
        "raster": RASTERS.index(config.raster) + 1,
        "split_k": config.split_k,
    }


def _kernels(tile: Shape, cluster_m: int, cluster_n: int) -> Iterator[Cutlass3Config]:
    for schedule, scheduler in itertools.product(SCHEDULES, SCHEDULERS):
        yield Cutlass3Config(
            threadblock=tile,
            schedule=schedule,
            cluster_m=cluster_m,
            cluster_n=cluster_n,
            scheduler=scheduler,
        )


def _loads(tile: Shape) -> float:
    """Return the rows of A and columns of B that are loaded per element of D."""
    return 1 / tile.m + 1 / tile.n


@cache
def _tiles(dtype: DType) -> tuple[Shape, ...]:
    """Return all tiles for which a thread has registers, the least loads first."""

    def has_registers(tile: Shape) -> bool:
        config = Cutlass3Config(threadblock=tile, schedule=Schedule.COOPERATIVE)
        return accumulator_registers(config, dtype) <= MOST_ACCUMULATORS

    tiles = (Shape(m, n, tile_depth(dtype)) for m in TILE_M for n in TILE_N)
    return tuple(sorted(filter(has_registers, tiles), key=_loads))


class _Tiling:
    """The tiles, clusters and launches that are worth considering for a problem."""

    def __init__(self, problem: Problem, arch: Arch) -> None:
        self._batch, self._m, self._n = problem.batch, problem.gemm.m, problem.gemm.n
        self._tiles_of_type = _tiles(problem.in_dtype)
        self._steps, self._arch = steps(problem, tile_depth(problem.in_dtype)), arch

    def sensible(self) -> Iterator[tuple[Shape, int, int]]:
        """Yield tiles with clusters that fit the problem, because the excess would idle.

        The largest cluster must need no more waves than no cluster. A tile of no usual width must
        waste less than every tile with fewer loads per element of D, and nearly as little as any
        tile.
        """
        found = [self._waves(tile, 1, 1) * tile.m * tile.n for tile in self._tiles_of_type]
        near = _NEAR * min(found)
        least_before = [math.inf, *itertools.accumulate(found, min)]
        for tile, better in zip(self._tiles_of_type, least_before, strict=False):
            fits_m = tile.m == TILE_M[0] or tile.m < 2 * self._m
            fits_n = tile.n == TILE_N[0] or tile.n < 2 * self._n
            if not (fits_m and fits_n):
                continue
            most = math.inf if tile.n in _USUAL_N else min(near, _WORTH_A_WIDTH * better)
            for cluster_m, cluster_n in self._clusters(tile):
                waves = self._waves(tile, cluster_m, cluster_n)
                is_large = cluster_m * cluster_n == MOST_IN_CLUSTER
                if waves * tile.m * tile.n <= most and not (
                    is_large and waves > self._waves(tile, 1, 1)
                ):
                    yield tile, cluster_m, cluster_n

    def has_part_of_a_wave(self, config: Cutlass3Config) -> bool:
        """Return whether stream-K has a last wave to fill; other widths fill waves themselves."""
        if config.scheduler is Scheduler.PERSISTENT:
            return True
        tiles = self._batch * math.prod(self._tiles(config.threadblock))
        is_usual = config.threadblock.n in _USUAL_N
        return is_usual and tiles % blocks_at_once(config, self._arch) != 0

    def launches(self, config: Cutlass3Config) -> Iterator[Cutlass3Config]:
        """Yield the kernel's orders of tiles, and its slices of K."""
        rows, columns = self._tiles(config.threadblock)
        room, tiles = blocks_at_once(config, self._arch), self._batch * rows * columns
        # A single row or column of clusters is visited in the same order in both directions.
        has_order = rows > config.cluster_m and columns > config.cluster_n
        tile, cluster = config.threadblock, (config.cluster_m, config.cluster_n)
        waves = self._waves(tile, *cluster)
        for swizzle in SWIZZLES:
            # CUTLASS lowers a swizzle that exceeds the number of tiles, and adds tiles to reach
            # whole swizzles of clusters.
            if swizzle == 1 or (
                swizzle <= min(rows, columns) and self._waves(tile, *cluster, swizzle) <= waves
            ):
                for raster in RASTERS if has_order else RASTERS[:1]:
                    yield replace(config, swizzle=swizzle, raster=raster)
        if config.scheduler is Scheduler.STREAM_K:
            for slices in SLICES[1:]:
                sliced = replace(config, split_k=slices)
                # Slices are for threadblocks that would have no tile.
                if slices * tiles <= room and self._steps >= least_steps(sliced):
                    yield sliced

    def _clusters(self, tile: Shape) -> Iterator[tuple[int, int]]:
        """Yield clusters with at most as many tiles as the problem has in each direction."""
        rows, columns = self._tiles(tile)
        for cluster_m, cluster_n in itertools.product(CLUSTERS, CLUSTERS):
            is_small = cluster_m * cluster_n <= MOST_IN_CLUSTER
            if is_small and cluster_m <= rows and cluster_n <= columns:
                yield cluster_m, cluster_n

    def _waves(self, tile: Shape, cluster_m: int, cluster_n: int, swizzle: int = 1) -> int:
        """Return the number of waves, counting the tiles that complete a cluster or a swizzle."""
        rows = whole_tiles(self._m, tile.m, swizzle * cluster_m)
        columns = whole_tiles(self._n, tile.n, swizzle * cluster_n)
        return math.ceil(self._batch * rows * columns / at_once(cluster_m * cluster_n, self._arch))

    def _tiles(self, tile: Shape) -> tuple[int, int]:
        """Return the number of tiles along M and along N."""
        return math.ceil(self._m / tile.m), math.ceil(self._n / tile.n)
