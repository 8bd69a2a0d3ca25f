"""The reasons why this family cannot compute a workload."""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.mma_sync.shapes import has_instruction
from boltgen.families.mma_sync.traits import OPTIMIZED_FILTER_EXTENT, groups_of
from boltgen.families.rejections import (
    MMA_SYNC,
    MMA_SYNC_OF_INTEGERS,
    graph_rejection,
    operand_rejection,
)
from boltgen.ir.dtypes import VECTOR_BYTES, Layout
from boltgen.ir.elementwise import ElementwiseGraph, LoadKind
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.convolution import Convolution
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.windows import filter_extents
from boltgen.problems.workload import Workload


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no configuration of a 2.x kernel computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one layer, not {len(workload.layers)} back to back"
    problem = workload.single.problem
    if not isinstance(problem, (Gemm, Convolution)):
        return f"it computes matrix products and convolutions, not a {type(problem).__name__}"
    if not workload.single.prologue.is_identity:
        return (
            "cp.async brings A to shared memory as it is, so nothing can be done to it before the "
            "product"
        )
    table = (*MMA_SYNC, *MMA_SYNC_OF_INTEGERS)
    if (reason := operand_rejection(problem, arch, table)) is not None:
        return reason
    if isinstance(problem, Conv3d) and (reason := _volumes_rejection(problem)) is not None:
        return reason
    epilogue = workload.single.epilogue
    if problem.in_dtype.is_whole and (reason := _integer_rejection(problem, epilogue, arch)):
        return reason
    if groups_of(problem) > 1 and (reason := _groups_rejection(epilogue)) is not None:
        return reason
    if epilogue.is_paired and epilogue.stores:
        return f"a pair of products stores D alone, not {epilogue.describe()}"
    for store in epilogue.reductions:
        if store.columns and problem.gemm.n % store.columns:
            return f"N={problem.gemm.n} is not a multiple of {store.columns}, which make a number"
    return graph_rejection(epilogue)


def _integer_rejection(
    problem: Gemm | Convolution, epilogue: ElementwiseGraph, arch: Arch
) -> str | None:
    """Return why no kernel multiplies integers in this way, or None if one does."""
    if not has_instruction(problem.in_dtype, arch):
        return f"no kernel multiplies {problem.in_dtype.value} on {arch.name}"
    if problem.gemm.b_layout is Layout.ROW:
        return "B is row-major: kernels of 8-bit integers read K side by side, in B column-major"
    if epilogue.is_paired or epilogue.further:
        return f"kernels of integers store D of one product alone, not {epilogue.describe()}"
    return None


def _volumes_rejection(problem: Conv3d) -> str | None:
    """Return why no kernel computes a convolution of volumes, or None.

    Source: cutlass/conv/threadblock/conv3d_fprop_activation_tile_access_iterator_optimized.h, which
    has one predicate bit for each filter plane, row and column, and only whole vectors.
    """
    if problem.in_dtype.is_whole:
        return f"no kernel multiplies {problem.in_dtype.value} of volumes"
    vector = VECTOR_BYTES // problem.in_dtype.size_bytes
    if problem.c % vector:
        return f"{problem.c} channels are no multiple of {vector}, which CUTLASS reads at once"
    size = max(filter_extents(problem))
    if size > OPTIMIZED_FILTER_EXTENT:
        return f"a filter of {size} along an axis; a thread guards {OPTIMIZED_FILTER_EXTENT} places"
    return None


# Operands that a group reads from its first column on.
_OF_GROUPS = frozenset({LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN})


def _groups_rejection(epilogue: ElementwiseGraph) -> str | None:
    """Return why no kernel of a convolution in groups computes an epilogue, or None."""
    if epilogue.further:
        return "a convolution in groups stores D alone"
    others = [load.kind for load in epilogue.loads if load.kind not in _OF_GROUPS]
    return f"no group of a convolution loads a {others[0].value}" if others else None
