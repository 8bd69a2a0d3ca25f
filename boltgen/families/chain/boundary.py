"""Resize back-to-back workloads, to reveal a kernel's mistakes at their edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from boltgen.families.boundary import with_depth, with_rows
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload


def of_rows(workload: Workload, rows: int) -> Workload:
    """Return the workload with `rows` rows, or a few more if the first layer is a convolution."""
    return _rebuilt(workload, with_rows(workload.first.problem, rows), _columns(workload))


def of_depth(workload: Workload, depth: int) -> Workload:
    """Return the workload with `depth` columns, or channels, of the first layer's A."""
    return _rebuilt(workload, with_depth(workload.first.problem, depth), _columns(workload))


def of_columns(changed: int) -> Callable[[Workload, int], Workload]:
    """Return a function that resizes the layer number `changed` to a number of columns."""

    def resized(workload: Workload, columns: int) -> Workload:
        all_columns = _columns(workload)
        all_columns[changed] = columns
        return _rebuilt(workload, workload.first.problem, all_columns)

    return resized


def _columns(workload: Workload) -> list[int]:
    return [layer.problem.gemm.n for layer in workload.layers]


def _rebuilt(workload: Workload, first: Problem, columns: list[int]) -> Workload:
    """Return `workload` with another first problem and these columns of each layer."""
    before = first.resized(first.a_shape[-1], columns[0])
    layers: list[Layer] = [replace(workload.first, problem=before)]
    for layer, n in zip(workload.layers[1:], columns[1:], strict=True):
        problem = layer.problem
        assert isinstance(problem, Gemm), "from the second layer on it is one"
        before = replace(problem, m=before.gemm.m, n=n, k=before.gemm.n, batch=before.batch)
        layers.append(replace(layer, problem=before))
    return Workload(layers=tuple(layers))
