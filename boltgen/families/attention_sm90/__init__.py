"""`attention_sm90`: softmax(Q K) V in one kernel of wgmma and TMA on sm_90a."""

from __future__ import annotations

from boltgen.arch import Arch, arch_named
from boltgen.families.attention_sm90 import code
from boltgen.families.attention_sm90.boundary import boundaries
from boltgen.families.attention_sm90.candidates import space_of
from boltgen.families.attention_sm90.config import AttentionSm90Config, compiled_traits
from boltgen.families.attention_sm90.legality import (
    has_key_masks,
    registers_per_thread,
    rejection,
    shared_memory_bytes,
    violations,
)
from boltgen.families.attention_sm90.model import instructions, predict
from boltgen.families.chain.traits import B2bTraits
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Footprint, WithoutLibrary
from boltgen.families.heads.launch import launch_of_heads
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.families.wgmma import ARCH_NAME, PersistentPrediction
from boltgen.ir.kernel import Launch
from boltgen.ir.workload import Workload


class AttentionSm90(WithoutLibrary[AttentionSm90Config]):
    """See `families.family.KernelFamily`. What TMA cannot load, `attention` computes."""

    name = AttentionSm90Config.family
    config_type = AttentionSm90Config

    stem = staticmethod(code.stem)
    describe = staticmethod(code.describe)
    includes = staticmethod(code.includes)
    view = staticmethod(code.view)

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """What is not two products with a softmax between them, or what TMA cannot load."""
        return rejection(workload, arch)

    def space(self, workload: Workload, arch: Arch) -> Space[AttentionSm90Config]:
        """Rows and keys."""
        return space_of(workload, arch)

    def violations(
        self, workload: Workload, config: AttentionSm90Config, arch: Arch
    ) -> tuple[Violation, ...]:
        """The rules of `legality`."""
        return violations(workload, config, arch)

    def footprint(self, workload: Workload, config: AttentionSm90Config) -> Footprint:
        """What `legality` says; registers are those of a thread that multiplies."""
        return Footprint(
            registers=registers_per_thread(config, has_masks=has_key_masks(workload)),
            shared_memory_bytes=shared_memory_bytes(config, arch_named(ARCH_NAME)),
            warps=4 * (1 + config.warpgroups),
        )

    def predict(
        self,
        workload: Workload,
        config: AttentionSm90Config,
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> PersistentPrediction:
        """The roofline of `model`."""
        return predict(workload, config, arch, constants)

    def instructions(
        self, workload: Workload, config: AttentionSm90Config, arch: Arch
    ) -> Instructions:
        """Those of `model`."""
        return instructions(workload, config, arch)

    def compiled(self, config: AttentionSm90Config) -> AttentionSm90Config:
        """All of it."""
        return config

    def traits(self, workload: Workload) -> B2bTraits:
        """Each product's layout and epilogue."""
        return compiled_traits(workload)

    def launch(self, workload: Workload, config: AttentionSm90Config) -> Launch:
        """Rows and columns of Q, then the keys and the columns of V."""
        del config
        return launch_of_heads(workload)

    def boundaries(
        self, workload: Workload, config: AttentionSm90Config, arch: Arch
    ) -> tuple[Workload, ...]:
        """More than a tile of rows and steps of keys, a single row, and several tiles for each
        threadblock.
        """
        return boundaries(workload, config, arch)


FAMILY = AttentionSm90()
