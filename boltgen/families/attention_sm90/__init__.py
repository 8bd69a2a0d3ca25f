"""`attention_sm90`: softmax(Q K) V in one kernel with wgmma and TMA on sm_90a."""

from __future__ import annotations

from boltgen.arch import arch_named
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
from boltgen.families.family import Footprint, KernelFamily, always
from boltgen.families.heads.launch import launch_of_heads
from boltgen.families.wgmma import ARCH_NAME
from boltgen.problems.workload import Workload


def _footprint(workload: Workload, config: AttentionSm90Config) -> Footprint:
    """Return the footprint by `legality`, with the registers of a multiplying thread."""
    return Footprint(
        registers=registers_per_thread(config, has_masks=has_key_masks(workload)),
        shared_memory_bytes=shared_memory_bytes(
            config, workload.first.problem.in_dtype, arch_named(ARCH_NAME)
        ),
        warps=4 * (1 + config.warpgroups),
    )


# The family `attention` computes workloads that TMA cannot load.
FAMILY = KernelFamily(
    config_type=AttentionSm90Config,
    rejects=rejection,
    space=space_of,
    violations=violations,
    footprint=_footprint,
    predict=predict,
    instructions=instructions,
    traits=compiled_traits,
    launch=lambda workload, _: launch_of_heads(workload),
    boundaries=boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=always(code.HEADERS),
    view=code.view,
)
