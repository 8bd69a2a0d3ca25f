"""Small workloads at which a back-to-back kernel's mistakes show.

Arrow: as `families.cutlass2.boundary`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b.legality import violations
from boltgen.families.b2b.traits import compiled_traits
from boltgen.families.cutlass2.boundary import first_beyond, last_below, with_depth, with_rows
from boltgen.ir.problem import Gemm, Problem
from boltgen.ir.workload import Layer, Workload


def boundaries(workload: Workload, config: B2bConfig, arch: Arch) -> tuple[Workload, ...]:
    """A large workload and a small one.

    The large one has a tile of rows and a ragged one, and more steps along the first K than the
    pipeline has stages; the columns are the workload's own, which the kernel keeps all of. The
    small one has a row, the least depth, and ragged columns. What is not legal is left out; where
    neither is, the workload itself is all.
    """
    traits, tile = compiled_traits(workload), config.layers[0]

    def fits(sized: Workload) -> bool:
        return compiled_traits(sized) == traits

    rows = config.threadblock_m
    large = of_rows(workload, rows + rows // 2 + 1)
    large = first_beyond(large, tile.k * (tile.stages + 1), of_depth, fits)
    small = first_beyond(of_rows(workload, 1), 0, of_depth, fits)
    for index, layer in enumerate(config.layers):
        small = last_below(small, layer.n, of_columns(index), fits)
    found = (
        sized for sized in (large, small) if fits(sized) and not violations(sized, config, arch)
    )
    return tuple(dict.fromkeys(found)) or (workload,)


def of_rows(workload: Workload, rows: int) -> Workload:
    """The same chain of so many rows, or a few more where the first layer is a convolution."""
    return _rebuilt(workload, with_rows(workload.first.problem, rows), _columns(workload))


def of_depth(workload: Workload, depth: int) -> Workload:
    """The same chain whose first layer multiplies so many columns, or channels, of A."""
    return _rebuilt(workload, with_depth(workload.first.problem, depth), _columns(workload))


def of_columns(changed: int) -> Callable[[Workload, int], Workload]:
    """Resizes the chain's layer of that number to the columns that it is called with."""

    def resized(workload: Workload, columns: int) -> Workload:
        all_columns = _columns(workload)
        all_columns[changed] = columns
        return _rebuilt(workload, workload.first.problem, all_columns)

    return resized


def _columns(workload: Workload) -> list[int]:
    return [layer.problem.gemm.n for layer in workload.layers]


def _rebuilt(workload: Workload, first: Problem, columns: list[int]) -> Workload:
    """`workload` of another first problem; each layer has so many columns, and what follows."""
    before = first.resized(first.a_shape[-1], columns[0])
    layers: list[Layer] = [replace(workload.first, problem=before)]
    for layer, n in zip(workload.layers[1:], columns[1:], strict=True):
        problem = layer.problem
        assert isinstance(problem, Gemm), "from the second layer on it is one"
        before = replace(problem, m=before.gemm.m, n=n, k=before.gemm.n, batch=before.batch)
        layers.append(replace(layer, problem=before))
    return Workload(layers=tuple(layers))
