"""Enumerate the few back-to-back configurations for sm_90a.

A layer's tile has the fewest columns that hold the layer, because every threadblock computes all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from boltgen.arch import Arch
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.b2b_sm90.legality import ROWS, fewest_columns, violations
from boltgen.families.chain.traits import Residence
from boltgen.families.space import Knob, Space, small_space
from boltgen.problems.workload import Workload

_RESIDENCES = tuple(Residence)


def space_of(workload: Workload, arch: Arch) -> Space[B2bSm90Config]:
    """Return the space of rows and residence; the columns follow from them.

    The knob of residence is 1 for registers and 2 for shared memory.
    """

    def config_at(point: Mapping[str, int]) -> B2bSm90Config | None:
        return _config(workload, point["threadblock_m"], _RESIDENCES[point["residence"] - 1])

    return small_space(
        B2bSm90Config.family,
        (Knob("threadblock_m", ROWS, ROWS[-1]), Knob("residence", (1, 2), 1)),
        config_at,
        lambda config: {
            "threadblock_m": config.threadblock_m,
            "residence": _RESIDENCES.index(config.residence) + 1,
        },
        lambda config: violations(workload, config, arch),
    )


def _config(workload: Workload, rows: int, residence: Residence) -> B2bSm90Config | None:
    columns = [fewest_columns(layer.problem.gemm.n, residence) for layer in workload.layers]
    held = tuple(each for each in columns if each is not None)
    if len(held) < len(columns):
        return None
    return B2bSm90Config(threadblock_m=rows, columns=held, residence=residence)
