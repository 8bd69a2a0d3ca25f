"""The configurations of `cutlass3` that are worth considering for a workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.cutlass3.config import Cutlass3Config, Scheduler
from boltgen.families.cutlass3.legality import (
    CLUSTERS,
    RASTERS,
    SCHEDULERS,
    SCHEDULES,
    SLICES,
    SWIZZLES,
    TILE_M,
    TILE_N,
    blocks_at_once,
    least_steps,
    violations,
)
from boltgen.families.space import Knob, Shape, Space
from boltgen.families.wgmma import TILE_DEPTH, steps
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer


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
        for config in tried():
            if not violations(layer, config, arch) and _is_sensible(layer.problem, config, arch):
                yield from _launches(layer.problem, config, arch)

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


def _tiles(problem: Problem, config: Cutlass3Config) -> tuple[int, int]:
    """Return how many tiles lie below each other, and side by side."""
    tile, gemm = config.threadblock, problem.gemm
    return math.ceil(gemm.m / tile.m), math.ceil(gemm.n / tile.n)


def _is_sensible(problem: Problem, config: Cutlass3Config, arch: Arch) -> bool:
    """Return whether the tile and the cluster fit the problem, as the excess would idle; and
    whether stream-K has a last wave to fill.
    """
    rows, columns = _tiles(problem, config)
    tile, gemm = config.threadblock, problem.gemm
    fits_m = tile.m == TILE_M[0] or tile.m < 2 * gemm.m
    fits_n = tile.n == TILE_N[0] or tile.n < 2 * gemm.n
    if config.cluster_m > rows or config.cluster_n > columns or not (fits_m and fits_n):
        return False
    tiles = problem.batch * rows * columns
    return config.scheduler is Scheduler.PERSISTENT or tiles % blocks_at_once(config, arch) != 0


def _launches(problem: Problem, config: Cutlass3Config, arch: Arch) -> Iterator[Cutlass3Config]:
    rows, columns = _tiles(problem, config)
    at_once, tiles = blocks_at_once(config, arch), problem.batch * rows * columns
    # One row or column of clusters is visited in the same order either way.
    has_order = rows > config.cluster_m and columns > config.cluster_n
    for swizzle, raster in itertools.product(SWIZZLES, RASTERS if has_order else RASTERS[:1]):
        # CUTLASS lessens the swizzle where there are fewer tiles than it.
        if swizzle == 1 or swizzle <= min(rows, columns):
            yield replace(config, swizzle=swizzle, raster=raster)
    if config.scheduler is Scheduler.STREAM_K:
        for slices in SLICES[1:]:
            sliced = replace(config, split_k=slices)
            # Slices are for threadblocks that would have no tile.
            if slices * tiles <= at_once and steps(problem, TILE_DEPTH) >= least_steps(sliced):
                yield sliced
