"""The configurations of `cutlass3` that are worth considering for a workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

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
    blocks_at_once,
    least_steps,
    violations,
    whole_tiles,
)
from boltgen.families.space import Knob, Shape, Space
from boltgen.families.wgmma import TILE_DEPTH, steps
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer

# Widths that are considered for every problem. Others have to fill the device a twentieth better.
_USUAL_N, _WORTH_A_WIDTH = (64, 128, 192, 256), 0.95


def space_of(layer: Layer, arch: Arch) -> Space[Cutlass3Config]:
    """Tiles, clusters, schedules and schedulers; order and slices as arguments of the launch."""

    def config_at(point: Mapping[str, int]) -> Cutlass3Config:
        return Cutlass3Config(
            threadblock=Shape(point["threadblock_m"], point["threadblock_n"], TILE_DEPTH),
            schedule=SCHEDULES[point["schedule"] - 1],
            cluster_m=point["cluster_m"],
            cluster_n=point["cluster_n"],
            scheduler=SCHEDULERS[point["scheduler"] - 1],
            swizzle=point["swizzle"],
            raster=RASTERS[point["raster"] - 1],
            split_k=point["split_k"],
        )

    def tried() -> Iterator[Cutlass3Config]:
        for m, n, schedule, cluster_m, cluster_n, scheduler in itertools.product(
            TILE_M, TILE_N, SCHEDULES, CLUSTERS, CLUSTERS, SCHEDULERS
        ):
            yield Cutlass3Config(
                threadblock=Shape(m, n, TILE_DEPTH),
                schedule=schedule,
                cluster_m=cluster_m,
                cluster_n=cluster_n,
                scheduler=scheduler,
            )

    def listed() -> Iterator[Cutlass3Config]:
        tiling = _Tiling(layer.problem, arch)
        for config in tried():
            # The rules take longer.
            if tiling.is_sensible(config) and not violations(layer, config, arch):
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


class _Tiling:
    """The tiles, clusters and launches that are worth considering for a problem."""

    def __init__(self, problem: Problem, arch: Arch) -> None:
        self._problem, self._arch = problem, arch
        self._m, self._n = problem.gemm.m, problem.gemm.n
        self._steps = steps(problem, TILE_DEPTH)
        self._seen: dict[tuple[int, ...], bool] = {}

    def is_sensible(self, config: Cutlass3Config) -> bool:
        """Return whether the tile and the cluster fit the problem, as the excess would idle; and
        whether stream-K has a last wave to fill.
        """
        tile = config.threadblock
        key = (tile.m, tile.n, config.cluster_m, config.cluster_n)
        if key not in self._seen:
            self._seen[key] = self._fits(config)
        if not self._seen[key]:
            return False
        tiles = self._problem.batch * math.prod(self._tiles(config))
        is_persistent = config.scheduler is Scheduler.PERSISTENT
        return is_persistent or tiles % blocks_at_once(config, self._arch) != 0

    def launches(self, config: Cutlass3Config) -> Iterator[Cutlass3Config]:
        """The orders of tiles of a kernel, and its slices of K."""
        rows, columns = self._tiles(config)
        at_once, tiles = blocks_at_once(config, self._arch), self._problem.batch * rows * columns
        # One row or column of clusters is visited in the same order either way.
        has_order = rows > config.cluster_m and columns > config.cluster_n
        waves = self._waves(config)
        for swizzle, raster in itertools.product(SWIZZLES, RASTERS if has_order else RASTERS[:1]):
            ordered = replace(config, swizzle=swizzle, raster=raster)
            # CUTLASS lessens the swizzle where there are fewer tiles than it, and adds tiles up to
            # whole swizzles of clusters.
            if swizzle == 1 or (swizzle <= min(rows, columns) and self._waves(ordered) <= waves):
                yield ordered
        if config.scheduler is Scheduler.STREAM_K:
            for slices in SLICES[1:]:
                sliced = replace(config, split_k=slices)
                # Slices are for threadblocks that would have no tile.
                if slices * tiles <= at_once and self._steps >= least_steps(sliced):
                    yield sliced

    def _fits(self, config: Cutlass3Config) -> bool:
        """Return whether the tile and the cluster fit the problem: no wider tile takes as few waves
        in all, weighed by their sizes, and no smaller cluster fewer than a large one.
        """
        tile = config.threadblock
        fits_m = tile.m == TILE_M[0] or tile.m < 2 * self._m
        fits_n = tile.n == TILE_N[0] or tile.n < 2 * self._n
        rows, columns = self._tiles(config)
        cluster = config.cluster_m * config.cluster_n
        if not (fits_m and fits_n) or config.cluster_m > rows or config.cluster_n > columns:
            return False
        if cluster > MOST_IN_CLUSTER:
            return False
        if cluster == MOST_IN_CLUSTER and self._waves(config) > self._waves(_alone(config)):
            return False
        return tile.n in _USUAL_N or self._fills(config)

    def _fills(self, config: Cutlass3Config) -> bool:
        """Return whether the busiest multiprocessor computes fewer columns than with any wider
        tile, which would read A less often.
        """
        tile = config.threadblock
        own = self._waves(config) * tile.n
        return all(own < _WORTH_A_WIDTH * columns for columns in self._wider(tile))

    def _wider(self, tile: Shape) -> Iterator[int]:
        """The columns that the busiest multiprocessor computes with wider tiles."""
        for n in TILE_N[TILE_N.index(tile.n) + 1 :]:
            other = Cutlass3Config(
                threadblock=Shape(tile.m, n, tile.k), schedule=Schedule.COOPERATIVE
            )
            if accumulator_registers(other) <= MOST_ACCUMULATORS:
                yield self._waves(other) * n

    def _waves(self, config: Cutlass3Config) -> int:
        """Return how often the device is filled with tiles, with all that are added to a cluster
        or a swizzle.
        """
        tile = config.threadblock
        rows = whole_tiles(self._m, tile.m, config.swizzle * config.cluster_m)
        columns = whole_tiles(self._n, tile.n, config.swizzle * config.cluster_n)
        tiles = self._problem.batch * rows * columns
        return math.ceil(tiles / blocks_at_once(config, self._arch))

    def _tiles(self, config: Cutlass3Config) -> tuple[int, int]:
        """Return how many tiles lie below each other, and side by side."""
        tile = config.threadblock
        return math.ceil(self._m / tile.m), math.ceil(self._n / tile.n)


def _alone(config: Cutlass3Config) -> Cutlass3Config:
    return replace(config, cluster_m=1, cluster_n=1)
