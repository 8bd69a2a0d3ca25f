"""`attention`: softmax(Q K) V in one kernel, without the matrix of scores in memory."""

from __future__ import annotations

from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.attention import code
from boltgen.families.attention.boundary import boundaries
from boltgen.families.attention.candidates import space_of
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import violations
from boltgen.families.attention.model import AttentionPrediction, instructions, predict
from boltgen.families.attention.resources import (
    registers_per_thread,
    shared_memory_bytes,
    split_workspace_bytes,
)
from boltgen.families.chain.traits import B2bTraits, compiled_traits
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Footprint, WithoutLibrary
from boltgen.families.heads.launch import launch_of_heads
from boltgen.families.heads.rejection import rejection
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.ir.kernel import Launch
from boltgen.ir.workload import Workload


class Attention(WithoutLibrary[AttentionConfig]):
    """See `families.family.KernelFamily`. What is compiled, and a launch, are as of a chain."""

    name = AttentionConfig.family
    config_type = AttentionConfig

    stem = staticmethod(code.stem)
    describe = staticmethod(code.describe)
    includes = staticmethod(code.includes)
    view = staticmethod(code.view)

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """What is not two products with a softmax between them."""
        return rejection(workload, arch)

    def space(self, workload: Workload, arch: Arch) -> Space[AttentionConfig]:
        """Rows, keys, warps, stages, and threadblocks that share the keys."""
        return space_of(workload, arch)

    def violations(
        self, workload: Workload, config: AttentionConfig, arch: Arch
    ) -> tuple[Violation, ...]:
        """The rules of `legality`."""
        return violations(workload, config, arch)

    def footprint(self, workload: Workload, config: AttentionConfig) -> Footprint:
        """What `resources` says, of a kernel with asynchronous copies."""
        return Footprint(
            registers=registers_per_thread(workload, config, is_async=True),
            shared_memory_bytes=shared_memory_bytes(workload, config),
            warps=config.warps,
        )

    def predict(
        self,
        workload: Workload,
        config: AttentionConfig,
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> AttentionPrediction:
        """The slowest of tensor cores, exponentials, L2 and DRAM, of `model`."""
        return predict(workload, config, arch, constants)

    def instructions(self, workload: Workload, config: AttentionConfig, arch: Arch) -> Instructions:
        """Those of `model`."""
        return instructions(workload, config, arch)

    def compiled(self, config: AttentionConfig) -> AttentionConfig:
        """All of it."""
        return config

    def traits(self, workload: Workload) -> B2bTraits:
        """Each product's layout, alignments and epilogue."""
        return compiled_traits(workload)

    def launch(self, workload: Workload, config: AttentionConfig) -> Launch:
        """Rows and columns of Q, then the keys and the columns of V."""
        return replace(
            launch_of_heads(workload),
            workspace_bytes=split_workspace_bytes(workload.greatest, config),
        )

    def boundaries(
        self, workload: Workload, config: AttentionConfig, arch: Arch
    ) -> tuple[Workload, ...]:
        """More than a tile of rows and steps of keys, and a single row."""
        return boundaries(workload, config, arch)


FAMILY = Attention()
