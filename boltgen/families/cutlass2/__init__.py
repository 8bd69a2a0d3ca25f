"""`cutlass2`: single layers by the CUTLASS 2.x API, on every architecture.

On sm_90 to sm_103 it is a fallback, because mma.sync does not use their tensor cores fully.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.cutlass2 import code
from boltgen.families.cutlass2.candidates import space_of
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass2.levels import level_configs, library_specs
from boltgen.families.cutlass2.rejection import rejection
from boltgen.families.family import Footprint, KernelFamily, Level, of_anchor, of_layer
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync import boundary
from boltgen.families.mma_sync import code as product_code
from boltgen.families.mma_sync.instructions import instructions
from boltgen.families.mma_sync.legality import layer_violations
from boltgen.families.mma_sync.model import predict, times_us
from boltgen.families.mma_sync.resources import (
    registers_per_thread,
    shared_memory_bytes,
    split_workspace_bytes,
)
from boltgen.families.mma_sync.traits import (
    compiled_traits,
    groups_of,
    kernel_traits,
)
from boltgen.ir.extent import greatest
from boltgen.ir.kernel import Launch
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import with_extents
from boltgen.problems.workload import Workload


def _footprint(workload: Workload, config: Cutlass2Config) -> Footprint:
    """Return the footprint by `resources`."""
    problem = workload.single.problem
    types = problem.in_dtype, problem.acc_dtype
    return Footprint(
        registers=registers_per_thread(config, *types),
        shared_memory_bytes=shared_memory_bytes(config, *types),
        warps=config.warps,
    )


def _instructions(workload: Workload, config: Cutlass2Config, arch: Arch) -> Instructions:
    """Return the instructions by `instructions`."""
    del arch
    layer = workload.single
    return instructions(layer.problem, layer.epilogue, config)


def _launch(workload: Workload, config: Cutlass2Config) -> Launch:
    """Return the problem's sizes with its groups, swizzle and slices of K."""
    problem = workload.single.problem
    groups = {"groups": groups_of(problem)} if problem.kind == Conv2d.kind else {}
    return Launch(
        struct=f"boltgen_{problem.kind}_args",
        sizes=problem.sizes | groups | {"split_k": config.split_k, "swizzle": config.swizzle},
        workspace_bytes=split_workspace_bytes(with_extents(problem, greatest), config),
    )


def _held(workload: Workload, arch: Arch, level: Level) -> frozenset[Cutlass2Config]:
    """Return the configurations of a level with the workload's traits."""
    return frozenset(level_configs(kernel_traits(workload.single.problem), arch, level))


FAMILY = KernelFamily(
    config_type=Cutlass2Config,
    rejects=rejection,
    space=of_layer(space_of),
    violations=of_layer(layer_violations),
    footprint=_footprint,
    predict=of_anchor(predict),
    times_us=of_anchor(times_us),
    instructions=_instructions,
    traits=of_anchor(compiled_traits),
    compiled=lambda config: config.kernel,
    launch=_launch,
    boundaries=boundary.boundaries,
    ranking=lambda workload: workload.plain,
    library=library_specs,
    held=_held,
    stem=product_code.stem,
    describe=product_code.describe,
    includes=code.includes,
    view=code.view,
)
