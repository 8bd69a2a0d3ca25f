"""Small problems that reveal a kernel's mistakes: more than one tile, and ragged edges.

Arrow: from a workload and its configuration to workloads of other sizes that the same kernel
computes, with the model's launch arguments.
"""

from __future__ import annotations

from boltgen.arch import Arch
from boltgen.families.boundary import MOST_TRIED, first_beyond, with_depth, with_rows
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.legality import violations
from boltgen.families.mma_sync.traits import compiled_traits
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.convolution import Convolution
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

_GROUPS = 2


def boundaries(workload: Workload, config: Tiles, arch: Arch) -> tuple[Workload, ...]:
    """Return a large workload and a small one.

    The large one has several tiles along M and N, the last of them ragged by the kernel's
    alignment; more steps along K than the pipeline has stages, the last of them ragged; several
    images, matmuls of a batch or groups; and the launch's number of slices of K. The small one has
    less than a tile of everything. Filter, stride, padding and dilation are the workload's. An
    illegal one is omitted; if both are illegal, return `workload` itself.
    """
    problem, epilogue = workload.single.problem, workload.single.epilogue
    traits, tile = compiled_traits(problem, epilogue), config.threadblock
    if traits.in_groups:
        assert isinstance(problem, Conv2d)
        problem = problem.group

    def grouped(sized: Problem) -> Problem:
        if not traits.in_groups:
            return sized
        assert isinstance(sized, Conv2d)
        return sized.in_groups(_GROUPS)

    def fits(sized: Problem) -> bool:
        return compiled_traits(grouped(sized), epilogue) == traits

    # The columns of D must be whole numbers of reduced parts.
    unit = max([1, *(store.columns for store in epilogue.reductions)])

    def with_columns(sized: Problem, columns: int) -> Problem:
        return sized.resized(sized.a_shape[-1], -(-columns // unit) * unit)

    columns = tile.n * config.swizzle // (2 if epilogue.is_paired else 1)
    large = (tile.m + tile.m // 2, columns, _depth(problem, config))
    small = (0, 0, 0 if config.split_k == 1 else large[2])
    found = []
    for rows, columns, depth in (large, small):
        sized = first_beyond(with_rows(problem, rows + 1), columns, with_columns, fits)
        # The slices need not be even if there are a few channels more or less.
        for deeper in range(MOST_TRIED):
            deep = first_beyond(sized, depth + deeper * tile.k, with_depth, fits)
            if fits(deep) and not violations(grouped(deep), config, arch):
                found.append(Workload.of(grouped(deep), epilogue))
                break
    return tuple(dict.fromkeys(found)) or (workload,)


def _depth(problem: Problem, config: Tiles) -> int:
    """Return whole steps of K or channels, so that a slice has more than the pipeline stages.

    With the ragged step that is added, the last slice lacks one.
    """
    slices = config.split_k
    steps = (config.stages + 1) * slices - (2 if slices > 1 else 0)
    if isinstance(problem, Convolution):
        steps = -(-steps // problem.filter_positions)
    return steps * config.threadblock.k
