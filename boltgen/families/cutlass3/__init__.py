"""`cutlass3`: matmuls and convolutions by CUTLASS 3.x's collectives: TMA and wgmma on sm_90a."""

from __future__ import annotations

import math

from boltgen.arch import Arch, arch_named
from boltgen.families.boundary import with_rows
from boltgen.families.cutlass3 import code
from boltgen.families.cutlass3.candidates import space_of
from boltgen.families.cutlass3.config import (
    Cutlass3Config,
    Cutlass3ConvTraits,
    Cutlass3Traits,
    Scheduler,
)
from boltgen.families.cutlass3.legality import (
    RASTERS,
    STREAM_K_STEPS,
    footprint,
    least_steps,
    rejection,
    stages,
    violations,
    workspace_bytes,
)
from boltgen.families.cutlass3.model import instructions, predict
from boltgen.families.family import (
    CHECKED_SMS,
    Footprint,
    KernelFamily,
    of_anchor,
    of_layer,
)
from boltgen.families.wgmma import ARCH_NAME
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.extent import greatest
from boltgen.ir.kernel import Launch
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import Problem, with_extents
from boltgen.problems.workload import Workload

# The bytes of a vector of TMA, of which extents are an odd multiple: so of no tile.
_RAGGED_BYTES = 16


def _footprint(workload: Workload, config: Cutlass3Config) -> Footprint:
    """Return the footprint by `legality`."""
    return footprint(config, workload.single, arch_named(ARCH_NAME))


def _traits(workload: Workload) -> Cutlass3Traits | Cutlass3ConvTraits:
    """Return the traits: types, the layout of a matmul's B, and the epilogue."""
    problem, epilogue = _parts(workload)
    types = {"in_dtype": problem.in_dtype, "out_dtype": problem.out_dtype}
    if not problem.is_matrix:
        return Cutlass3ConvTraits(epilogue=epilogue, **types)
    return Cutlass3Traits(epilogue=epilogue, b_layout=problem.gemm.b_layout, **types)


def _compiled(config: Cutlass3Config) -> Cutlass3Config:
    """Return the configuration without its order of tiles and slices of K."""
    return config.kernel


def _launch(workload: Workload, config: Cutlass3Config) -> Launch:
    """Return the problem's sizes with the order of tiles and the slices of K."""
    problem, _ = _parts(workload)
    order = {"swizzle": config.swizzle, "raster": RASTERS.index(config.raster)}
    return Launch(
        struct="boltgen_gemm_args" if problem.is_matrix else "boltgen_conv2d_args",
        sizes=problem.sizes | {"split_k": config.split_k} | order,
        workspace_bytes=workspace_bytes(with_extents(problem, greatest), config),
    )


def _boundaries(workload: Workload, config: Cutlass3Config, arch: Arch) -> tuple[Workload, ...]:
    """Return problems with ragged tiles and clusters, with less than a tile, and with many tiles.

    The first have more steps than stages. The last have several tiles per threadblock, of which all
    but the first find pipelines in use. Stream-K divides the tiles beyond whole waves, so it gets
    an odd number of clusters, which fill no wave.
    """
    problem, epilogue = _parts(workload)
    tile, least = config.threadblock, least_steps(config)
    ragged = _RAGGED_BYTES // problem.in_dtype.size_bytes
    rows, columns = config.cluster_m * tile.m, config.cluster_n * tile.n
    is_stream_k = config.scheduler is Scheduler.STREAM_K
    several = 2 * STREAM_K_STEPS if is_stream_k else 0
    steps = max(stages(config, workload.single, arch), several, least)

    def depth(steps: int) -> int:
        taps = problem.r * problem.s if isinstance(problem, Conv2d) else 1
        return math.ceil(steps / taps) * tile.k + ragged

    one = problem.gemm if problem.is_matrix else problem
    if is_stream_k and config.split_k == 1:
        first = _sized(one, rows - tile.m // 2 + 1, 2 * columns + ragged, depth(steps))
    else:
        wide = columns * config.swizzle + ragged
        first = _sized(problem, rows + tile.m // 2 + 1, wide, depth(steps))
    sized = (
        first,
        _sized(problem, 1, ragged, depth(least - 1)),
        # In pingpong the third tile of a threadblock is the second one of a warpgroup.
        _sized(one, 3 * CHECKED_SMS * tile.m + 1, ragged, depth(max(1, least - 1))),
    )
    return tuple(Workload.of(each, epilogue) for each in sized)


def _sized(problem: Problem, m: int, n: int, k: int) -> Problem:
    """Return the problem with other sizes: `k` channels and about `m` pixels of a convolution."""
    return with_rows(problem, m).resized(k, n)


def _parts(workload: Workload) -> tuple[Problem, ElementwiseGraph]:
    layer = workload.single
    return layer.problem, layer.epilogue


# The schedule decides how much of an epilogue is hidden, so kernels are ranked with the epilogue.
FAMILY = KernelFamily(
    config_type=Cutlass3Config,
    rejects=rejection,
    space=of_layer(space_of),
    violations=of_layer(violations),
    footprint=_footprint,
    predict=of_anchor(predict),
    instructions=of_anchor(instructions),
    traits=_traits,
    compiled=_compiled,
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=code.includes,
    view=code.view,
)
