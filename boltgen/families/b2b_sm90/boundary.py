"""Small workloads that reveal mistakes of a back-to-back kernel for sm_90a.

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

# A multiple of TMA's alignment, but of no step along K.
_RAGGED = 8


def boundaries(workload: Workload, config: B2bSm90Config, arch: Arch) -> tuple[Workload, ...]:
    """Return up to three workloads.

    The first has a ragged tile, and more steps along the first K than the ring has stages. The
    second has one row, and columns as ragged as the kernel allows. The third has several tiles per
    threadblock, of which all but the first find the ring in use. Illegal ones are omitted; if none
    is left, return `workload` itself.
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
