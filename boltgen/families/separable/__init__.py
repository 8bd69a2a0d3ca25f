"""`separable`: a depthwise convolution and the 1x1 one after it, by mma.sync, in one kernel."""

from __future__ import annotations

from boltgen.families.chain.traits import launch_of
from boltgen.families.family import KernelFamily
from boltgen.families.separable import code
from boltgen.families.separable.boundary import boundaries
from boltgen.families.separable.candidates import space_of
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.separable.legality import footprint, rejection, violations
from boltgen.families.separable.model import instructions, predict
from boltgen.families.separable.traits import compiled_traits

FAMILY = KernelFamily(
    config_type=SeparableConfig,
    rejects=rejection,
    space=space_of,
    violations=violations,
    footprint=footprint,
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
