"""`b2b_sm90`: layers back to back in one kernel of wgmma and TMA on sm_90a: Bolt, section 3.1."""

from __future__ import annotations

from boltgen.arch import Arch, arch_named
from boltgen.families.b2b_sm90 import code
from boltgen.families.b2b_sm90.boundary import boundaries
from boltgen.families.b2b_sm90.candidates import space_of
from boltgen.families.b2b_sm90.config import B2bSm90Config, B2bSm90Traits, compiled_traits
from boltgen.families.b2b_sm90.legality import (
    rejection,
    shared_memory_bytes,
    violations,
)
from boltgen.families.b2b_sm90.model import instructions, predict
from boltgen.families.chain.traits import launch_of
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Footprint, WithoutLibrary
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.families.wgmma import ARCH_NAME, MATH_REGISTERS, PersistentPrediction
from boltgen.ir.kernel import Launch
from boltgen.ir.workload import Workload


class B2bSm90(WithoutLibrary[B2bSm90Config]):
    """See `families.family.KernelFamily`.

    Between layers a kernel depends on the epilogues, so no times rank it but its own.
    """

    name = B2bSm90Config.family
    config_type = B2bSm90Config

    stem = staticmethod(code.stem)
    describe = staticmethod(code.describe)
    includes = staticmethod(code.includes)
    view = staticmethod(code.view)

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """A single layer, or what TMA cannot load and wgmma not multiply."""
        return rejection(workload, arch)

    def space(self, workload: Workload, arch: Arch) -> Space[B2bSm90Config]:
        """Rows and residence; columns follow from the layers."""
        return space_of(workload, arch)

    def violations(
        self, workload: Workload, config: B2bSm90Config, arch: Arch
    ) -> tuple[Violation, ...]:
        """The rules of `legality`."""
        return violations(workload, config, arch)

    def footprint(self, workload: Workload, config: B2bSm90Config) -> Footprint:
        """What `legality` says; registers are those of a thread that multiplies."""
        del workload
        return Footprint(
            registers=MATH_REGISTERS,
            shared_memory_bytes=shared_memory_bytes(config, arch_named(ARCH_NAME)),
            warps=4 * (1 + config.warpgroups),
        )

    def predict(
        self,
        workload: Workload,
        config: B2bSm90Config,
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> PersistentPrediction:
        """The roofline of `model`."""
        return predict(workload, config, arch, constants)

    def instructions(self, workload: Workload, config: B2bSm90Config, arch: Arch) -> Instructions:
        """Those of `model`."""
        return instructions(workload, config, arch)

    def compiled(self, config: B2bSm90Config) -> B2bSm90Config:
        """All of it."""
        return config

    def traits(self, workload: Workload) -> B2bSm90Traits:
        """Types, and each layer's layout, alignment and epilogue."""
        return compiled_traits(workload)

    def launch(self, workload: Workload, config: B2bSm90Config) -> Launch:
        """The first layer's rows and depth, then each layer's columns."""
        del config
        return launch_of(workload)

    def boundaries(
        self, workload: Workload, config: B2bSm90Config, arch: Arch
    ) -> tuple[Workload, ...]:
        """Ragged tiles, a single row, and several tiles for each threadblock."""
        return boundaries(workload, config, arch)


FAMILY = B2bSm90()
