"""Small workloads that reveal mistakes of a depthwise separable kernel."""

from __future__ import annotations

from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.boundary import first_beyond, input_extent, last_below
from boltgen.families.depthwise_tile import depthwise_of, vector_of_a
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.separable.legality import violations
from boltgen.families.separable.traits import compiled_traits
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

# Pixels in a row of the output: no power of two, so that tiles begin and end within rows.
_ROW_PIXELS = 7


def boundaries(workload: Workload, config: SeparableConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return a large workload and a small one.

    The large one has two images, a full tile of pixels and a ragged one, more channels between the
    layers than two steps have, and a ragged second tile of columns. The small one has one pixel and
    one vector of channels. Illegal ones are omitted; if both are, return `workload` itself.
    """
    traits, block = compiled_traits(workload), config.threadblock
    vector = vector_of_a(depthwise_of(workload.first))

    def fits(sized: Workload) -> bool:
        return compiled_traits(sized) == traits

    rows = -(-3 * block.m // (4 * _ROW_PIXELS))
    vectors = 2 * block.k // traits.vector + 1
    large = _sized(workload, (2, rows, _ROW_PIXELS), vectors * vector)
    large = first_beyond(large, block.n, _of_columns, fits)
    small = _sized(workload, (1, 1, 1), vector)
    small = last_below(small, workload.last.problem.gemm.n, _of_columns, fits)
    found = (
        sized for sized in (large, small) if fits(sized) and not violations(sized, config, arch)
    )
    return tuple(dict.fromkeys(found)) or (workload,)


def _sized(workload: Workload, output: tuple[int, int, int], channels: int) -> Workload:
    """Return the workload with an output of (images, rows, columns), and `channels` of A."""
    images, rows, columns = output
    first = depthwise_of(workload.first)
    sized = replace(
        first,
        n=images,
        h=input_extent(first, 0, rows),
        w=input_extent(first, 1, columns),
        c=channels,
    )
    last = workload.last.problem
    assert isinstance(last, Gemm)
    then = replace(last, m=sized.gemm.m, k=sized.k)
    return Workload(
        layers=(
            replace(workload.first, problem=sized),
            replace(workload.last, problem=then),
        )
    )


def _of_columns(workload: Workload, columns: int) -> Workload:
    """Return the workload with so many channels of D."""
    last = workload.last.problem
    assert isinstance(last, Gemm)
    then = replace(workload.last, problem=replace(last, n=columns))
    return Workload(layers=(workload.first, then))
