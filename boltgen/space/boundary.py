"""Small problems at which a kernel's mistakes show: more than one tile, and ragged edges.

Arrow: a problem and its configuration to problems of other sizes that the very same kernel
computes, launched as the model launches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError
from boltgen.ir.chain import AnyProblem, Chain, ChainLayer, Conv2dChain, GemmChain, chain_of
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.space.b2b_kernel import chain_kernel_spec
from boltgen.space.b2b_legality import chain_violations
from boltgen.space.config import AnyConfig, B2bConfig, Cutlass2Config
from boltgen.space.kernel import kernel_spec
from boltgen.space.legality import violations

_BATCH, _IMAGES = 3, 2
# Pixels in a row of a convolution's output: no power of two, so that tiles begin inside rows.
_ROW_PIXELS = 7
# Beyond any extent, one of so many next ones has any alignment that a kernel may have.
_MOST_TRIED = 16

_Sized = TypeVar("_Sized", Problem, Chain)


def boundary_problems(
    problem: AnyProblem, epilogue: Epilogue, config: AnyConfig, arch: Arch
) -> tuple[AnyProblem, ...]:
    """What to run the kernel of `problem` in `config` on: a large problem and a small one.

    The large one has several tiles along M and N, the last of them ragged by the kernel's
    alignment, more steps along K than the pipeline has stages and a ragged last one, several
    images or products of a batch, and as many slices of K as the launch has. The small one has
    less than a tile of everything. Filter, stride, padding and dilation are the problem's own.
    What is not legal is left out; where neither is, the problem itself is all.
    """
    found: Iterable[AnyProblem]
    match problem, config:
        case ((GemmChain() | Conv2dChain()), B2bConfig()):
            found = _chains(problem, config, arch)
        case ((Gemm() | BatchedGemm() | Conv2d()), Cutlass2Config()):
            found = _singles(problem, epilogue, config, arch)
        case _:
            raise AssertionError(f"{config} is no configuration of a {type(problem).__name__}")
    return tuple(dict.fromkeys(found)) or (problem,)


def _singles(
    problem: Problem, epilogue: Epilogue, config: Cutlass2Config, arch: Arch
) -> Iterator[Problem]:
    spec, tile = kernel_spec(problem, epilogue, config, arch.name), config.threadblock

    def fits(sized: Problem) -> bool:
        return kernel_spec(sized, epilogue, config, arch.name) == spec

    large = (tile.m + tile.m // 2, tile.n * config.swizzle, _depth(problem, config))
    small = (0, 0, 0 if config.split_k == 1 else large[2])
    for rows, columns, depth in (large, small):
        sized = _with_rows(problem, rows + 1)
        sized = _beyond(sized, columns, _with_columns, fits)
        # Slices need not divide a few channels more or less.
        for deeper in range(_MOST_TRIED):
            deep = _beyond(sized, depth + deeper * tile.k, _with_depth, fits)
            if fits(deep) and not violations(deep, config, arch):
                yield deep
                break


def _depth(problem: Problem, config: Cutlass2Config) -> int:
    """Whole steps of K, or of channels, so that a slice has more than the pipeline has stages.

    Beside the ragged step that comes on top the last slice lacks one.
    """
    slices = config.split_k
    steps = (config.stages + 1) * slices - (2 if slices > 1 else 0)
    if isinstance(problem, Conv2d):
        steps = -(-steps // (problem.r * problem.s))
    return steps * config.threadblock.k


def _chains(chain: Chain, config: B2bConfig, arch: Arch) -> Iterator[Chain]:
    spec, tile = chain_kernel_spec(chain, config, arch.name), config.layers[0]

    def fits(sized: Chain) -> bool:
        return chain_kernel_spec(sized, config, arch.name) == spec

    rows = config.threadblock_m
    large = _chain_with_rows(chain, rows + rows // 2 + 1)
    large = _beyond(large, tile.k * (tile.stages + 1), _chain_with_depth, fits)
    small = _beyond(_chain_with_rows(chain, 1), 0, _chain_with_depth, fits)
    for index, layer in enumerate(config.layers):
        small = _below(small, layer.n, _columns_of(index), fits)
    for sized in (large, small):
        if fits(sized) and not chain_violations(sized, config, arch):
            yield sized


def _beyond(
    problem: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """`problem` with the first extent beyond `extent` that fits the kernel, else as it is."""
    return _first(problem, range(extent + 1, extent + 1 + _MOST_TRIED), resized, fits)


def _below(
    problem: _Sized,
    extent: int,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    """`problem` with the last extent below `extent` that fits the kernel, else as it is."""
    return _first(problem, range(extent - 1, max(0, extent - 1 - _MOST_TRIED), -1), resized, fits)


def _first(
    problem: _Sized,
    extents: range,
    resized: Callable[[_Sized, int], _Sized],
    fits: Callable[[_Sized], bool],
) -> _Sized:
    for extent in extents:
        try:
            sized = resized(problem, extent)
        except InvalidProblemError:
            continue
        if fits(sized):
            return sized
    return problem


def _with_rows(problem: Problem, rows: int) -> Problem:
    """`problem` with `rows` rows of its product, or a few more; a batch of several where it has
    one.
    """
    match problem:
        case Gemm():
            return replace(problem, m=rows)
        case BatchedGemm():
            return replace(problem, m=rows, batch=_BATCH)
        case Conv2d():
            images, q = (1, 1) if rows == 1 else (_IMAGES, _ROW_PIXELS)
            h, w = _reach(problem, 0, -(-rows // (images * q))), _reach(problem, 1, q)
            return replace(problem, n=images, h=h, w=w)


def _reach(problem: Conv2d, axis: int, extent: int) -> int:
    """The activation's extent that gives `extent` of the output, or the least one that is valid.

    Pixels beyond the last window, which no output reads, are there where the stride allows them.
    """
    size, stride = (problem.r, problem.s)[axis], problem.stride[axis]
    window = problem.dilation[axis] * (size - 1) + 1
    padding = problem.padding[axis] + problem.padding[axis + 2]
    return max(1, (extent - 1) * stride + window - padding + (stride - 1))


def _with_columns(problem: Problem, columns: int) -> Problem:
    if isinstance(problem, Conv2d):
        return replace(problem, k=columns)
    return replace(problem, n=columns)


def _with_depth(problem: Problem, depth: int) -> Problem:
    """`problem` with so much of K; of a convolution, with so many channels if K alone is deeper."""
    if isinstance(problem, Conv2d):
        return replace(problem, c=depth)
    return replace(problem, k=depth)


def _chain_with_rows(chain: Chain, rows: int) -> Chain:
    return _rebuilt(chain, lambda index, layer: _with_rows(layer.problem, rows))


def _chain_with_depth(chain: Chain, depth: int) -> Chain:
    return _rebuilt(
        chain,
        lambda index, layer: layer.problem if index else _with_depth(layer.problem, depth),
    )


def _columns_of(changed: int) -> Callable[[Chain, int], Chain]:
    def resized(chain: Chain, columns: int) -> Chain:
        def sized(index: int, layer: ChainLayer) -> Problem:
            if index == changed:
                return _with_columns(layer.problem, columns)
            is_next = index == changed + 1
            return _with_depth(layer.problem, columns) if is_next else layer.problem

        return _rebuilt(chain, sized)

    return resized


def _rebuilt(chain: Chain, sized: Callable[[int, ChainLayer], Problem]) -> Chain:
    """`chain` of layers with other problems; images of a later layer follow from the first's."""
    problems = [sized(index, layer) for index, layer in enumerate(chain.layers)]
    first = problems[0]
    for index, problem in enumerate(problems):
        if index and isinstance(first, Conv2d) and isinstance(problem, Conv2d):
            problems[index] = replace(problem, n=first.n, h=first.p, w=first.q)
    return chain_of(
        tuple(
            replace(layer, problem=problem)
            for layer, problem in zip(chain.layers, problems, strict=True)
        )
    )
