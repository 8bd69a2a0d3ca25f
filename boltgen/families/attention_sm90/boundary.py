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
    """Those of `attention.boundary.edges`; and several tiles for each threadblock, all but whose
    first find the rings in use. What is not legal is left out; where nothing is left, the workload
    itself is all.
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
        # Of causal rows that have no key the result is NaN, and says nothing.
        keys = (
            rows + -rows % 8 if workload.last.prologue.is_causal else found[-1].first.problem.gemm.n
        )
        found = (*found, resized(found[-1], {"m": rows, "n": keys}))
    legal = (each for each in found if fits(each) and not violations(each, config, arch))
    return tuple(dict.fromkeys(legal)) or (workload,)
