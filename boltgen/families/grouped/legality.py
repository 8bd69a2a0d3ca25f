"""The legality of grouped configurations: the rules of `mma_sync`, and further ones."""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.grouped.config import GroupedConfig, grouped_of, rows_bytes
from boltgen.families.mma_sync.legality import extent_violations, kernel_violations
from boltgen.families.mma_sync.resources import shared_memory_bytes
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.rejections import MMA_SYNC, graph_rejection, others_rejection, type_rejection
from boltgen.families.space import Violation
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.workload import Layer, Workload


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one product, not {len(workload.layers)} layers back to back"
    layer = workload.single
    problem = layer.problem
    if not isinstance(problem, GroupedGemm):
        return f"it computes products of rows in groups, not a {type(problem).__name__}"
    if not layer.prologue.is_identity:
        return f"it multiplies A as it is, not {layer.prologue.describe()}"
    if layer.epilogue.reductions:
        return f"it stores full tensors: {layer.epilogue.describe()}"
    return (
        type_rejection(problem, arch, MMA_SYNC)
        or graph_rejection(layer.epilogue)
        or others_rejection(layer.epilogue)
    )


def violations(layer: Layer, config: GroupedConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for a layer on `arch`; empty if it is legal."""
    problem = grouped_of(layer)
    return (
        *kernel_violations(kernel_traits(problem.gemm), config.gemm, arch),
        *extent_violations(problem.gemm, config.gemm),
        *_own_violations(problem, config, arch),
    )


def _own_violations(problem: GroupedGemm, config: GroupedConfig, arch: Arch) -> Iterator[Violation]:
    if config.gemm.split_k != 1:
        yield Violation(
            name="split_k_grouped",
            message=f"{config.gemm.split_k} slices of K of {problem.short}",
            reason="how many tiles a group has is not known when slices are counted; "
            "templates/include/boltgen/grouped_gemm.h",
        )
    tiles = shared_memory_bytes(config.gemm, problem.in_dtype, problem.acc_dtype)
    rows = rows_bytes(problem, config)
    most = arch.shared_memory_per_cta_bytes
    if tiles <= most < tiles + rows:
        yield Violation(
            name="shared_memory_of_rows",
            message=f"{tiles} bytes of shared memory, and {rows} of the rows that a tile takes; a "
            f"threadblock on {arch.name} has {most}",
            reason="the numbers of a tile's rows stay there while K is gone through; "
            "templates/include/boltgen/gathered_mainloop.h",
            slack=1.0 - (tiles + rows) / most,
        )
