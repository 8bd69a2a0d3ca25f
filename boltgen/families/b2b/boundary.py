"""Small workloads that reveal mistakes of a back-to-back kernel.

Arrow: as `families.mma_sync.boundary`.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.legality import violations
from boltgen.families.boundary import first_beyond, last_below
from boltgen.families.chain.boundary import of_columns, of_depth, of_rows
from boltgen.families.chain.traits import compiled_traits
from boltgen.problems.workload import Workload


def boundaries(workload: Workload, config: B2bConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return a large workload and a small one.

    The large one has a full tile of rows and a ragged one, and more steps along the first K than
    the pipeline has stages; it has the workload's own columns, because the kernel keeps all of
    them. The small one has one row, the least depth, and ragged columns. Illegal ones are omitted;
    if both are illegal, return `workload` itself.
    """
    traits, tile = compiled_traits(workload), config.layers[0]

    def fits(sized: Workload) -> bool:
        return compiled_traits(sized) == traits

    rows = config.threadblock_m
    large = of_rows(workload, rows + rows // 2 + 1)
    large = first_beyond(large, tile.k * (tile.stages + 1), of_depth, fits)
    small = first_beyond(of_rows(workload, 1), 0, of_depth, fits)
    for index, layer in enumerate(config.layers):
        small = last_below(small, layer.n, of_columns(index), fits)
    found = (
        sized for sized in (large, small) if fits(sized) and not violations(sized, config, arch)
    )
    return tuple(dict.fromkeys(found)) or (workload,)
