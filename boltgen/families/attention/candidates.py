"""Enumerate the attention configurations worth considering for a workload: some dozen kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import violations
from boltgen.families.space import Knob, Space
from boltgen.problems.workload import Workload

_ROWS = (64, 128)
_KEYS = (32, 64, 128)
_WARPS = (4, 8)
_STAGES = (2, 3)
_SPLITS = (1, 2, 4, 8, 16, 32)
_KEY_WARPS = (1, 2)
# Steps of a threadblock's share of the keys: a pipeline that is filled for fewer is never full.
_LEAST_STEPS = 2
# The fewest keys of a warp that shares a step: with fewer, most of a step is overhead.
_LEAST_WARP_KEYS = 32
# Columns of Q and V in a threadblock: columns beyond the head are zero, and multiplied all the
# same.
_HEADS = (16, 32, 64, 80, 96, 128, 160, 192, 256)


@lru_cache(maxsize=256)
def enumerate_configs(workload: Workload, arch: Arch) -> tuple[AttentionConfig, ...]:
    """Return all legal configurations worth considering, in a fixed order."""
    return tuple(
        each
        for each in _tried(workload)
        if _is_worth(workload, each, arch) and not violations(workload, each, arch)
    )


def _is_worth(workload: Workload, config: AttentionConfig, arch: Arch) -> bool:
    """Whether its threadblocks share keys only where a device is idle otherwise, and have no rows
    in vain, and its warps share no few keys.
    """
    if config.key_warps > 1 and config.warp_keys < _LEAST_WARP_KEYS:
        return False
    if config.splits == 1:
        return True
    scores = workload.first.problem.gemm
    if config.rows > _ROWS[0] >= scores.m:
        return False
    tiles = math.ceil(scores.m / config.rows) * workload.batch
    steps = math.ceil(scores.n / config.keys)
    return tiles * config.splits < 2 * arch.sm_count and steps >= _LEAST_STEPS * config.splits


def space_of(workload: Workload, arch: Arch) -> Space[AttentionConfig]:
    """Return the space of rows, keys, warps, stages and splits; the tile of the head is fixed."""

    def config_at(point: Mapping[str, int]) -> AttentionConfig | None:
        return _config(workload, **point)

    def point_of(config: AttentionConfig) -> dict[str, int]:
        return {
            "rows": config.rows,
            "keys": config.keys,
            "warps": config.warps,
            "stages": config.stages,
            "splits": config.splits,
            "key_warps": config.key_warps,
        }

    return Space(
        family=AttentionConfig.family,
        knobs=(
            Knob("rows", _ROWS, 64),
            Knob("keys", _KEYS, 64),
            Knob("warps", _WARPS, 4),
            Knob("stages", _STAGES, 2),
            Knob("splits", _SPLITS, 1),
            Knob("key_warps", _KEY_WARPS, 1),
        ),
        config_at=config_at,
        point_of=point_of,
        listed=lambda: enumerate_configs(workload, arch),
        tried=lambda: _tried(workload),
        broken=lambda config: violations(workload, config, arch),
    )


def _tried(workload: Workload) -> Iterator[AttentionConfig]:
    values = (_ROWS, _KEYS, _WARPS, _STAGES, _SPLITS, _KEY_WARPS)
    for rows, keys, warps, stages, splits, key_warps in itertools.product(*values):
        config = _config(
            workload,
            rows=rows,
            keys=keys,
            warps=warps,
            stages=stages,
            splits=splits,
            key_warps=key_warps,
        )
        # Warps of less than sixteen rows have no fragment.
        if config is not None and config.warp_rows % 16 == 0:
            yield config


def _config(
    workload: Workload,
    *,
    rows: int,
    keys: int,
    warps: int,
    stages: int,
    splits: int,
    key_warps: int,
) -> AttentionConfig | None:
    """Return the configuration with the smallest tile that holds the head, or None."""
    scores, output = (layer.problem.gemm for layer in workload.layers)
    depth, columns = _least(scores.k), _least(output.n)
    if depth is None or columns is None:
        return None
    return AttentionConfig(
        rows=rows,
        keys=keys,
        depth=depth,
        columns=columns,
        warps=warps,
        stages=stages,
        splits=splits,
        key_warps=key_warps,
    )


def _least(extent: int) -> int | None:
    return next((tile for tile in _HEADS if tile >= extent), None)
