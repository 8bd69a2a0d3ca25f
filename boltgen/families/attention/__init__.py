"""`attention`: softmax(Q K) V in one kernel, without the matrix of scores in memory."""

from __future__ import annotations

from dataclasses import replace

from boltgen.families.attention import code
from boltgen.families.attention.boundary import boundaries
from boltgen.families.attention.candidates import space_of
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.legality import violations
from boltgen.families.attention.model import instructions, predict
from boltgen.families.attention.resources import (
    registers_per_thread,
    shared_memory_bytes,
    split_workspace_bytes,
)
from boltgen.families.chain.traits import compiled_traits
from boltgen.families.family import Footprint, KernelFamily, always
from boltgen.families.heads.launch import launch_of_heads
from boltgen.families.heads.rejection import rejection
from boltgen.ir.kernel import Launch
from boltgen.problems.workload import Workload


def _footprint(workload: Workload, config: AttentionConfig) -> Footprint:
    """Return the footprint by `resources`, for a kernel with asynchronous copies."""
    return Footprint(
        registers=registers_per_thread(workload, config, is_async=True),
        shared_memory_bytes=shared_memory_bytes(workload, config),
        warps=config.warps,
    )


def _launch(workload: Workload, config: AttentionConfig) -> Launch:
    """Return the rows and columns of Q, the keys, and the columns of V."""
    return replace(
        launch_of_heads(workload),
        workspace_bytes=split_workspace_bytes(workload.greatest, config),
    )


# Back-to-back kernels have the same compiled part and launch.
FAMILY = KernelFamily(
    config_type=AttentionConfig,
    rejects=rejection,
    space=space_of,
    violations=violations,
    footprint=_footprint,
    predict=predict,
    instructions=instructions,
    traits=compiled_traits,
    launch=_launch,
    boundaries=boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=always(code.HEADERS),
    view=code.view,
)
