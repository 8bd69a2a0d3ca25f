"""The reasons why no attention kernel computes a workload."""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.rejections import MMA_SYNC_IN_F32, operand_rejection, others_rejection
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import SOFTMAX, ElementwiseGraph, local_softmax
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no attention kernel computes a workload, or None if one can."""
    if len(workload.layers) != 2:
        return f"it is two products with a softmax between them, not {len(workload.layers)} layers"
    before, after = workload.layers
    if not before.prologue.is_identity or after.prologue not in _softmaxes(after.prologue):
        return f"between its products is a softmax of rows, not {after.prologue.describe()}"
    if not isinstance(before.problem, Gemm):
        return f"it begins with a matrix product, not a {type(before.problem).__name__}"
    if before.problem.out_dtype is not DType.F32:
        return f"scores are float32 before the softmax, not {before.problem.out_dtype.value}"
    for index, layer in enumerate(workload.layers):
        if (reason := operand_rejection(layer.problem, arch, MMA_SYNC_IN_F32)) is not None:
            return f"layer {index}: {reason}"
        if layer.epilogue.stores:
            return f"layer {index}: it stores {layer.epilogue.describe()}"
        if (reason := others_rejection(layer.epilogue)) is not None:
            return f"layer {index}: {reason}"
    return None


def _softmaxes(prologue: ElementwiseGraph) -> tuple[ElementwiseGraph, ...]:
    return SOFTMAX, local_softmax(prologue.window)
