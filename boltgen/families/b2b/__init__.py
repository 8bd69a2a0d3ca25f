"""`b2b`: layers back to back in one kernel, from parts of CUTLASS 2.x (Bolt, section 3.1)."""

from __future__ import annotations

from boltgen.families.b2b import code
from boltgen.families.b2b.boundary import boundaries
from boltgen.families.b2b.candidates import space_of
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.legality import rejection, violations
from boltgen.families.b2b.model import instructions, predict
from boltgen.families.b2b.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.chain.traits import compiled_traits, launch_of
from boltgen.families.family import Footprint, KernelFamily
from boltgen.problems.workload import Workload


def _footprint(workload: Workload, config: B2bConfig) -> Footprint:
    """Return the footprint by `resources`."""
    return Footprint(
        registers=registers_per_thread(workload, config),
        shared_memory_bytes=shared_memory_bytes(workload, config),
        warps=config.warps,
    )


# Without a ranking: a kernel depends on the epilogues between layers, so only its own times rank
# it.
FAMILY = KernelFamily(
    config_type=B2bConfig,
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
