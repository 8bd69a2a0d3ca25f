"""The reasons why this family cannot compute a workload."""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.rejections import MMA_SYNC, graph_rejection, operand_rejection
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no configuration of a 2.x kernel computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one layer, not {len(workload.layers)} back to back"
    problem = workload.single.problem
    if not isinstance(problem, (Gemm, Conv2d)):
        return f"it computes matrix products and convolutions, not a {type(problem).__name__}"
    if not workload.single.prologue.is_identity:
        return (
            "cp.async brings A to shared memory as it is, so nothing can be done to it before the "
            "product"
        )
    if (reason := operand_rejection(problem, arch, MMA_SYNC)) is not None:
        return reason
    epilogue = workload.single.epilogue
    if epilogue.is_paired and epilogue.stores:
        return f"a pair of products stores D alone, not {epilogue.describe()}"
    for store in epilogue.reductions:
        if store.columns and problem.gemm.n % store.columns:
            return f"N={problem.gemm.n} is not a multiple of {store.columns}, which make a number"
    return graph_rejection(epilogue)
