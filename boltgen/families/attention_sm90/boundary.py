"""Small workloads at which an attention kernel of sm_90a goes wrong if anywhere.

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
    """Return the boundaries of `heads.boundary.edges`, and several tiles for each threadblock: all
    but its first find the rings in use. Illegal ones are left out; if none is left, return the
    workload itself.
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
        # Causal rows without a key give NaN, which checks nothing.
        keys = (
            rows + -rows % 8 if workload.last.prologue.is_causal else found[-1].first.problem.gemm.n
        )
        found = (*found, resized(found[-1], {"m": rows, "n": keys}))
    legal = (each for each in found if fits(each) and not violations(each, config, arch))
    return tuple(dict.fromkeys(legal)) or (workload,)
