"""Enumerate the back-to-back configurations worth considering for a workload: tens of kernels.

A layer's tile has the fewest columns that hold the layer, because every threadblock computes all of
them. The rows of a threadblock, the warps, the depth of the pipeline, and the residence of
intermediates vary.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig, LayerTile
from boltgen.families.b2b.legality import layer_violations, violations
from boltgen.families.chain.traits import Residence
from boltgen.families.space import Knob, Shape, Space
from boltgen.problems.workload import Layer, Workload

_ROWS = (32, 64, 128, 256)
_COLUMNS = (16, 32, 64, 128, 256)
_WARPS = (1, 2, 4, 8)
# Two stages cannot overlap a copy with its use, so they are used only without cp.async. More than
# four only take shared memory from other threadblocks, because a later layer has few steps.
_STAGES = (3, 4)
_DEPTHS = (32, 64)
_RESIDENCES = tuple(Residence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """The parts of a configuration that all layers share."""

    rows: int
    warps: int
    residence: Residence
    instruction: Shape


@lru_cache(maxsize=256)
def enumerate_configs(workload: Workload, arch: Arch) -> tuple[B2bConfig, ...]:
    """Return all legal configurations worth considering, in a fixed order."""
    legal = (each for each in _candidates(workload, arch) if not violations(workload, each, arch))
    return tuple(dict.fromkeys(legal))


def space_of(workload: Workload, arch: Arch) -> Space[B2bConfig]:
    """Return the space of the knobs that all layers share; columns and warps follow from them.

    The knob of residence is 1 for registers and 2 for shared memory.
    """
    instruction = Shape(*arch.mma_shapes[0])
    stages = _STAGES if arch.has_async_copies else (2,)

    def config_at(point: Mapping[str, int]) -> B2bConfig | None:
        block = _Block(
            rows=point["threadblock_m"],
            warps=point["warps"],
            residence=_RESIDENCES[point["residence"] - 1],
            instruction=instruction,
        )
        deep = point["threadblock_k"] == _DEPTHS[-1]
        tiles = _tiles(workload, arch, block, point["stages"], deep=deep)
        return None if tiles is None else _config(block, tiles)

    def point_of(config: B2bConfig) -> dict[str, int]:
        return {
            "threadblock_m": config.threadblock_m,
            "warps": config.warps,
            "residence": _RESIDENCES.index(config.residence) + 1,
            "threadblock_k": config.layers[0].k,
            "stages": max(tile.stages for tile in config.layers),
        }

    return Space(
        family=B2bConfig.family,
        knobs=(
            Knob("threadblock_m", _ROWS, 64),
            Knob("warps", _WARPS, 4),
            Knob("residence", (1, 2), 1),
            Knob("threadblock_k", _DEPTHS, 32),
            Knob("stages", stages, stages[0]),
        ),
        config_at=config_at,
        point_of=point_of,
        listed=lambda: enumerate_configs(workload, arch),
        tried=lambda: _candidates(workload, arch),
        broken=lambda config: violations(workload, config, arch),
        # Enumerates all values of the knobs, except rows beyond twice the problem's.
        kernels=lambda: enumerate_configs(workload, arch),
    )


def _candidates(workload: Workload, arch: Arch) -> Iterator[B2bConfig]:
    m = workload.first.problem.gemm.m
    rows = [extent for extent in _ROWS if extent < 2 * m] or [_ROWS[0]]
    stages = _STAGES if arch.has_async_copies else (2,)
    for residence, extent, warps in itertools.product(Residence, rows, _WARPS):
        block = _Block(
            rows=extent,
            warps=warps,
            residence=residence,
            instruction=Shape(*arch.mma_shapes[0]),
        )
        for deep, count in itertools.product((True, False), stages):
            tiles = _tiles(workload, arch, block, count, deep=deep)
            if tiles is not None:
                yield _config(block, tiles)


def _config(block: _Block, tiles: tuple[LayerTile, ...]) -> B2bConfig:
    return B2bConfig(
        threadblock_m=block.rows,
        layers=tiles,
        instruction=block.instruction,
        residence=block.residence,
    )


def _tiles(
    workload: Workload, arch: Arch, block: _Block, stages: int, *, deep: bool
) -> tuple[LayerTile, ...] | None:
    """Return tiles with the fewest legal columns for every layer; None if a layer has none."""
    tiles: list[LayerTile] = []
    for index, layer in enumerate(workload.layers):
        depth = _depth(tiles[-1].n if tiles else None, deep=deep)
        asynchronous = arch.has_async_copies and layer.problem.alignment_b > 1
        if not index:
            asynchronous &= layer.problem.alignment_a > 1
        role = {"is_first": index == 0, "is_last": index + 1 == len(workload.layers)}
        legal = (
            tile
            for tile in _layer_tiles(layer, block, depth, stages if asynchronous else 2)
            if not any(layer_violations(layer, _config(block, (tile,)).of_layer(0), arch, **role))
        )
        best = min(legal, key=lambda tile: (tile.n, tile.warp_m + tile.warp_n), default=None)
        if best is None:
            return None
        tiles.append(best)
    return tuple(tiles)


def _layer_tiles(layer: Layer, block: _Block, depth: int, stages: int) -> Iterator[LayerTile]:
    """Yield every division of the threadblock's rows, and enough columns, between its warps."""
    for n in _COLUMNS:
        if n < layer.problem.gemm.n:
            continue
        for along_m in (count for count in _WARPS if block.warps % count == 0):
            along_n = block.warps // along_m
            if along_n > 1 and block.residence is Residence.REGISTERS:
                continue
            if block.rows % along_m == 0 and n % along_n == 0:
                yield LayerTile(
                    n=n,
                    k=depth,
                    warp_m=block.rows // along_m,
                    warp_n=n // along_n,
                    stages=stages,
                )


def _depth(columns_before: int | None, *, deep: bool) -> int:
    """Return the step along K; a later layer's step must divide the columns before it."""
    deepest = _DEPTHS[-1] if deep else _DEPTHS[0]
    return deepest if columns_before is None else min(deepest, columns_before)
