"""Enumerate the attention configurations worth considering for a workload: some dozen kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import violations
from boltgen.families.space import Knob, Space, small_space
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
def space_of(workload: Workload, arch: Arch) -> Space[AttentionConfig]:
    """Return the space of rows, keys, warps, stages and splits; the tile of the head is fixed."""
    scores, output = (layer.problem.gemm for layer in workload.layers)
    depth, columns = _least(scores.k), _least(output.n)

    def config_at(point: Mapping[str, int]) -> AttentionConfig | None:
        if depth is None or columns is None:
            return None
        config = AttentionConfig(depth=depth, columns=columns, **point)
        # Warps of less than sixteen rows have no fragment.
        return None if config.warp_rows % 16 else config

    return small_space(
        AttentionConfig.family,
        (
            Knob("rows", _ROWS, 64),
            Knob("keys", _KEYS, 64),
            Knob("warps", _WARPS, 4),
            Knob("stages", _STAGES, 2),
            Knob("splits", _SPLITS, 1),
            Knob("key_warps", _KEY_WARPS, 1),
        ),
        config_at,
        lambda config: violations(workload, config, arch),
        is_sensible=lambda config: _is_worth(workload, config, arch),
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


def _least(extent: int) -> int | None:
    return next((tile for tile in _HEADS if tile >= extent), None)
