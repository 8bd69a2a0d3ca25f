"""`b2b_sm90`: layers back to back in one kernel with wgmma and TMA on sm_90a: Bolt, section 3.1."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.families.b2b_sm90 import code
from boltgen.families.b2b_sm90.boundary import boundaries
from boltgen.families.b2b_sm90.candidates import space_of
from boltgen.families.b2b_sm90.config import B2bSm90Config, compiled_traits
from boltgen.families.b2b_sm90.legality import (
    rejection,
    shared_memory_bytes,
    violations,
)
from boltgen.families.b2b_sm90.model import instructions, predict
from boltgen.families.chain.traits import launch_of
from boltgen.families.family import Footprint, KernelFamily
from boltgen.families.wgmma import ARCH_NAME, MATH_REGISTERS
from boltgen.problems.workload import Workload


def _footprint(workload: Workload, config: B2bSm90Config) -> Footprint:
    """Return the footprint by `legality`, with the registers of a multiplying thread."""
    return Footprint(
        registers=MATH_REGISTERS,
        shared_memory_bytes=shared_memory_bytes(
            config, workload.first.problem.in_dtype, arch_named(ARCH_NAME)
        ),
        warps=4 * (1 + config.warpgroups),
    )


# Without a ranking: a kernel depends on the epilogues between layers, so only its own times rank
# it.
FAMILY = KernelFamily(
    config_type=B2bSm90Config,
    rejects=rejection,
    space=space_of,
    violations=violations,
    footprint=_footprint,
    predict=predict,
    instructions=instructions,
    traits=compiled_traits,
    launch=lambda workload, _: launch_of(workload),
    boundaries=boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=code.includes,
    view=code.view,
)
