"""Enumerate sm_90a's attention configurations: rows, keys, and the smallest tile of the head."""

from __future__ import annotations

from collections.abc import Mapping

from boltgen.arch import Arch
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.attention_sm90.legality import HEADS, KEYS, ROWS, violations
from boltgen.families.space import Knob, Space, small_space
from boltgen.problems.workload import Workload


def space_of(workload: Workload, arch: Arch) -> Space[AttentionSm90Config]:
    """Return the space of rows and keys; the workload determines the tile of the head."""

    def config_at(point: Mapping[str, int]) -> AttentionSm90Config | None:
        return _config(workload, point["rows"], point["keys"])

    return small_space(
        AttentionSm90Config.family,
        (Knob("rows", ROWS, 128), Knob("keys", KEYS, 128)),
        config_at,
        lambda config: {"rows": config.rows, "keys": config.keys},
        lambda config: violations(workload, config, arch),
    )


def _config(workload: Workload, rows: int, keys: int) -> AttentionSm90Config | None:
    """Return the configuration with the smallest tile that holds the head, or None."""
    scores, output = (layer.problem.gemm for layer in workload.layers)
    depth, columns = (
        next((tile for tile in HEADS if tile >= extent), None) for extent in (scores.k, output.n)
    )
    if depth is None or columns is None:
        return None
    return AttentionSm90Config(rows=rows, keys=keys, depth=depth, columns=columns)
