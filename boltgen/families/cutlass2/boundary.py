"""Small problems at which a kernel's mistakes show: more than one tile, and ragged edges.

Arrow: a workload and its configuration to workloads of other sizes that the very same kernel
computes, launched as the model launches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass2.legality import violations
from boltgen.families.cutlass2.traits import compiled_traits
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.workload import Workload

_BATCH, _IMAGES = 3, 2
# Pixels in a row of a convolution's output: no power of two, so that tiles begin inside rows.
_ROW_PIXELS = 7
# Beyond any extent, one of so many next ones has any alignment that a kernel may have.
_MOST_TRIED = 16

_Sized = TypeVar("_Sized")


def boundaries(workload: Workload, config: Cutlass2Config, arch: Arch) -> tuple[Workload, ...]:
    """A large workload and a small one.

    The large one has several tiles along M and N, the last of them ragged by the kernel's
    alignment, more steps along K than the pipeline has stages and a ragged last one, several
    images or products of a batch, and as many slices of K as the launch has. The small one has
    less than a tile of everything. Filter, stride, padding and dilation are the workload's own.
    What is not legal is left out; where neither is, the workload itself is all.
    """
    problem, epilogue = workload.single.problem, workload.single.epilogue
    traits, tile = compiled_traits(problem, epilogue), config.threadblock

    def fits(sized: Problem) -> bool:
        return compiled_traits(sized, epilogue) == traits

    # Whole numbers of what `columns` of D make.
    unit = max([1, *(store.columns for store in epilogue.reductions)])

    def with_columns(sized: Problem, columns: int) -> Problem:
        return sized.resized(sized.a_shape[-1], -(-columns // unit) * unit)

    columns = tile.n * config.swizzle // (2 if epilogue.is_paired else 1)
    large = (tile.m + tile.m // 2, columns, _depth(problem, config))
    small = (0, 0, 0 if config.split_k == 1 else large[2])
    found = []
    for rows, columns, depth in (large, small):
        sized = first_beyond(with_rows(problem, rows + 1), columns, with_columns, fits)
        # Slices need not divide a few channels more or less.
        for deeper in range(_MOST_TRIED):
            deep = first_beyond(sized, depth + deeper * tile.k, with_depth, fits)
            if fits(deep) and not violations(deep, config, arch):
                found.append(Workload.of(deep, epilogue))
                break
    return tuple(dict.fromkeys(found)) or (workload,)


def _depth(problem: Problem, config: Cutlass2Config) -> int:
    """Whole steps of K, or of channels, so that a slice has more than the pipeline has stages.

    Beside the ragged step that comes on top the last slice lacks one.
    """
    slices = config.split_k
    steps = (config.stages + 1) * slices - (2 if slices > 1 else 0)
    if isinstance(problem, Conv2d):
        steps = -(-steps // (problem.r * problem.s))
    return steps * config.threadblock.k


def first_beyond(
    value: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """`value` with the first extent beyond `extent` that fits the kernel, else as it is."""
    return _first(value, range(extent + 1, extent + 1 + _MOST_TRIED), resized, fits)


def last_below(
    value: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """`value` with the last extent below `extent` that fits the kernel, else as it is."""
    return _first(value, range(extent - 1, max(0, extent - 1 - _MOST_TRIED), -1), resized, fits)


def _first(
    value: _Sized,
    extents: range,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    for extent in extents:
        try:
            sized = resized(value, extent)
        except InvalidProblemError:
            continue
        if fits(sized):
            return sized
    return value


def with_rows(problem: Problem, rows: int) -> Problem:
    """Return `problem` with `rows` rows of its product, or a few more.

    A batch stays one of several products. A pointwise convolution keeps several images: its
    workload is a convolution only because the epilogue reduces each image, and with one image of
    one pixel it would become a matrix product, which another kernel computes.
    """
    match problem:
        case Gemm():
            return replace(problem, m=rows, batch=_BATCH if problem.batch > 1 else 1)
        case Conv2d():
            images, q = (_IMAGES, _ROW_PIXELS)
            if rows == 1:
                images, q = (_IMAGES if problem.is_pointwise else 1), 1
            h, w = _reach(problem, 0, -(-rows // (images * q))), _reach(problem, 1, q)
            return replace(problem, n=images, h=h, w=w)
        case _:
            raise AssertionError(f"{problem.short} has no rows")


def _reach(problem: Conv2d, axis: int, extent: int) -> int:
    """The activation's extent that gives `extent` of the output, or the least one that is valid.

    Pixels beyond the last window, which no output reads, are there where the stride allows them.
    """
    size, stride = (problem.r, problem.s)[axis], problem.stride[axis]
    window = problem.dilation[axis] * (size - 1) + 1
    padding = problem.padding[axis] + problem.padding[axis + 2]
    return max(1, (extent - 1) * stride + window - padding + (stride - 1))


def with_depth(problem: Problem, depth: int) -> Problem:
    """`problem` with so much of K; of a convolution, with so many channels."""
    return problem.resized(depth, problem.d_shape[-1])
