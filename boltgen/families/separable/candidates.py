"""Enumerate the configurations of depthwise separable convolutions worth considering."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.separable.legality import COLUMNS, tasks, violations
from boltgen.families.space import Knob, Shape, Space
from boltgen.problems.workload import Workload

_ROWS = (32, 64, 128)
_COLUMNS_OF_D = (16, 32, 48, 64, 96, 128, 160, 192, 256)
_DEPTHS = (32, 64)
_WARPS = (2, 4, 8)
# B's tiles are small, and a step takes long: more stages only take shared memory.
_STAGES = (2, 3)
# Each tile along D's channels computes the depthwise convolution anew.
_MOST_COLUMN_TILES = 4
_NAMES = ("threadblock_m", "threadblock_n", "threadblock_k", "warps", "stages", "columns")


def space_of(workload: Workload, arch: Arch) -> Space[SeparableConfig]:
    """Return the space of tiles, warps, stages and pixels of a thread."""
    stages = _stages(workload, arch)

    def config_at(point: Mapping[str, int]) -> SeparableConfig | None:
        return _config(workload, arch, point)

    def point_of(config: SeparableConfig) -> dict[str, int]:
        block = config.threadblock
        values = (block.m, block.n, block.k, config.tiles.warps, config.stages, config.columns)
        return dict(zip(_NAMES, values, strict=True))

    return Space(
        family=SeparableConfig.family,
        knobs=(
            Knob("threadblock_m", _ROWS, 64),
            Knob("threadblock_n", _COLUMNS_OF_D, 64),
            Knob("threadblock_k", _DEPTHS, 32),
            Knob("warps", _WARPS, 4),
            Knob("stages", stages, stages[-1]),
            Knob("columns", COLUMNS, 2),
        ),
        config_at=config_at,
        point_of=point_of,
        listed=lambda: enumerate_configs(workload, arch),
        tried=lambda: _candidates(workload, arch),
        broken=lambda config: violations(workload, config, arch),
    )


@lru_cache(maxsize=256)
def enumerate_configs(workload: Workload, arch: Arch) -> tuple[SeparableConfig, ...]:
    """Return the legal configurations worth considering, in a fixed order."""
    return tuple(
        config
        for config in _candidates(workload, arch)
        if _keeps_threads_busy(workload, config) and not violations(workload, config, arch)
    )


def _stages(workload: Workload, arch: Arch) -> tuple[int, ...]:
    is_async = arch.has_async_copies and workload.last.problem.alignment_b > 1
    return _STAGES if is_async else _STAGES[:1]


def _candidates(workload: Workload, arch: Arch) -> Iterator[SeparableConfig]:
    gemm = workload.last.problem.gemm
    rows = [extent for extent in _ROWS if extent < 2 * gemm.m] or [_ROWS[0]]
    values = (rows, _column_tiles(gemm.n), _DEPTHS, _WARPS, _stages(workload, arch), COLUMNS)
    for point in itertools.product(*values):
        config = _config(workload, arch, dict(zip(_NAMES, point, strict=True)))
        if config is not None:
            yield config


def _column_tiles(n: int) -> list[int]:
    """Return the least columns of a tile for each number of tiles, up to a few."""
    least = {math.ceil(n / columns): columns for columns in reversed(_COLUMNS_OF_D)}
    return sorted(columns for tiles, columns in least.items() if tiles <= _MOST_COLUMN_TILES) or [
        _COLUMNS_OF_D[-1]
    ]


def _keeps_threads_busy(workload: Workload, config: SeparableConfig) -> bool:
    """Return whether each thread has a tile of the depthwise convolution in each step."""
    is_least = config.columns == COLUMNS[0] and config.threadblock.m == _ROWS[0]
    return is_least or tasks(workload, config) >= config.threads


def _config(workload: Workload, arch: Arch, point: Mapping[str, int]) -> SeparableConfig | None:
    """Return the configuration whose warps have the squarest legal tiles, or None."""
    m, n, k, warps = (point[name] for name in _NAMES[:4])
    found = (
        SeparableConfig(
            threadblock=Shape(m, n, k),
            warp_m=m // along_m,
            warp_n=n // (warps // along_m),
            instruction=Shape(*arch.mma_shapes[0]),
            stages=point["stages"],
            columns=point["columns"],
        )
        for along_m in (1, 2, 4, 8)
        if warps % along_m == 0 and m % along_m == 0 and n % (warps // along_m) == 0
    )
    squarest = sorted(found, key=lambda config: (config.warp_m + config.warp_n, config.warp_m))
    legal = (each for each in squarest if not violations(workload, each, arch))
    return next(legal, next(iter(squarest), None))
