"""Small workloads at which a back-to-back kernel of sm_90a goes wrong if anywhere.

Arrow: as `families.mma_sync.boundary`.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.b2b_sm90.config import B2bSm90Config, compiled_traits
from boltgen.families.b2b_sm90.legality import rejection, stages, violations
from boltgen.families.boundary import last_below
from boltgen.families.chain.boundary import of_columns, of_depth, of_rows
from boltgen.families.family import CHECKED_SMS
from boltgen.families.wgmma import TILE_DEPTH
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload

# A multiple of what TMA is aligned to, and of no step along K.
_RAGGED = 8


def boundaries(workload: Workload, config: B2bSm90Config, arch: Arch) -> tuple[Workload, ...]:
    """A ragged tile and more steps along the first K than the ring has stages; a single row and
    ragged columns; and several tiles for each threadblock: all but its first find the ring in use.

    Columns are the workload's own, but for the second's, which are as ragged as the kernel takes.
    Illegal ones are left out; if none is left, return the workload itself.
    """
    traits, rows = compiled_traits(workload), config.threadblock_m

    def fits(sized: Workload) -> bool:
        return rejection(sized, arch) is None and compiled_traits(sized) == traits

    first = workload.first.problem
    steps = stages(config, first.in_dtype, arch) + 1
    if isinstance(first, Conv2d):
        steps = -(-steps // (first.r * first.s))
    deep = steps * TILE_DEPTH + _RAGGED
    small = of_depth(of_rows(workload, 1), _RAGGED)
    for index, columns in enumerate(config.columns):
        small = last_below(small, columns, of_columns(index), fits)
    found = (
        of_depth(of_rows(workload, rows + rows // 2 + 1), deep),
        small,
        of_depth(of_rows(workload, 2 * CHECKED_SMS * rows + 1), TILE_DEPTH + _RAGGED),
    )
    legal = (each for each in found if fits(each) and not violations(each, config, arch))
    return tuple(dict.fromkeys(legal)) or (workload,)
