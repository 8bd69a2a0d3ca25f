"""Small workloads that reveal mistakes of an attention kernel.

Arrow: as `families.mma_sync.boundary`.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import violations
from boltgen.families.chain.traits import compiled_traits
from boltgen.families.heads.boundary import Tile, edges
from boltgen.problems.workload import Workload


def boundaries(workload: Workload, config: AttentionConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return the legal ones of a large workload and a small one; `workload` if none is legal."""
    traits = compiled_traits(workload)
    tile = Tile(
        rows=config.rows,
        keys=config.keys,
        depth=config.depth,
        columns=config.columns,
        steps=config.splits * (config.stages + 1),
    )
    found = edges(workload, tile, lambda sized: compiled_traits(sized) == traits)
    return tuple(each for each in found if not violations(each, config, arch)) or (workload,)
