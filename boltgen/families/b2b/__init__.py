"""`b2b`: layers back to back in one kernel, of the CUTLASS 2.x parts: Bolt, section 3.1."""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.b2b import code
from boltgen.families.b2b.boundary import boundaries
from boltgen.families.b2b.candidates import space_of
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.legality import rejection, violations
from boltgen.families.b2b.model import B2bPrediction, instructions, predict
from boltgen.families.b2b.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.chain.traits import B2bTraits, compiled_traits, launch_of
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Footprint, WithoutLibrary
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.ir.kernel import Launch
from boltgen.ir.workload import Workload


class B2b(WithoutLibrary[B2bConfig]):
    """See `families.family.KernelFamily`.

    Between layers a kernel depends on the epilogues, so no times rank it but its own.
    """

    name = B2bConfig.family
    config_type = B2bConfig

    stem = staticmethod(code.stem)
    describe = staticmethod(code.describe)
    includes = staticmethod(code.includes)
    view = staticmethod(code.view)

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """A single layer, or an architecture that it is not for."""
        return rejection(workload, arch)

    def space(self, workload: Workload, arch: Arch) -> Space[B2bConfig]:
        """Rows, warps, depth, stages and residence; columns follow from the layers."""
        return space_of(workload, arch)

    def violations(
        self, workload: Workload, config: B2bConfig, arch: Arch
    ) -> tuple[Violation, ...]:
        """The rules of `legality`."""
        return violations(workload, config, arch)

    def footprint(self, workload: Workload, config: B2bConfig) -> Footprint:
        """What `resources` says."""
        return Footprint(
            registers=registers_per_thread(workload, config),
            shared_memory_bytes=shared_memory_bytes(workload, config),
            warps=config.warps,
        )

    def predict(
        self,
        workload: Workload,
        config: B2bConfig,
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> B2bPrediction:
        """The sum of the layers' times, of `model`."""
        return predict(workload, config, arch, constants)

    def instructions(self, workload: Workload, config: B2bConfig, arch: Arch) -> Instructions:
        """Those of `model`."""
        del arch
        return instructions(workload, config)

    def compiled(self, config: B2bConfig) -> B2bConfig:
        """All of it."""
        return config

    def traits(self, workload: Workload) -> B2bTraits:
        """Each layer's types, layout, alignments and epilogue."""
        return compiled_traits(workload)

    def launch(self, workload: Workload, config: B2bConfig) -> Launch:
        """The first layer's rows and depth, then each layer's columns."""
        del config
        return launch_of(workload)

    def boundaries(self, workload: Workload, config: B2bConfig, arch: Arch) -> tuple[Workload, ...]:
        """More than a tile of rows, and a single one."""
        return boundaries(workload, config, arch)


FAMILY = B2b()
