"""Small workloads that reveal mistakes of an attention kernel for sm_90a.

Arrow: as `families.mma_sync.boundary`.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.attention_sm90.config import AttentionSm90Config, compiled_traits
from boltgen.families.attention_sm90.legality import rejection, stages, violations
from boltgen.families.family import CHECKED_SMS
from boltgen.families.heads.boundary import Tile, edges, resized
from boltgen.problems.workload import Workload


def boundaries(workload: Workload, config: AttentionSm90Config, arch: Arch) -> tuple[Workload, ...]:
    """Return `heads.boundary.edges`, and a workload with several tiles per threadblock.

    In the latter all tiles but the first find the rings in use. Illegal workloads are omitted; if
    none is legal, return `workload` itself.
    """
    traits = compiled_traits(workload)

    def fits(sized: Workload) -> bool:
        return rejection(sized, arch) is None and compiled_traits(sized) == traits

    tile = Tile(
        rows=config.rows,
        keys=config.keys,
        depth=config.depth,
        columns=config.columns,
        steps=stages(config, traits.in_dtype, arch) + 1,
    )
    found = edges(workload, tile, fits)
    if found:
        rows = 2 * CHECKED_SMS * config.rows + 1
        # A causal row without keys is NaN, which checks nothing.
        keys = (
            rows + -rows % 8 if workload.last.prologue.is_causal else found[-1].first.problem.gemm.n
        )
        found = (*found, resized(found[-1], {"m": rows, "n": keys}))
    legal = (each for each in found if fits(each) and not violations(each, config, arch))
    return tuple(dict.fromkeys(legal)) or (workload,)
