"""Build a model that returns the range of each of its tensors, in its author's precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boltgen.graph.facts import MOVES
from boltgen.graph.graph import CONSTANT, PART, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType

_FLOATS = frozenset({"float16", "float32", "float64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range of a tensor when the model runs on given inputs.

    `index` is its expression in the graph of the function `main`, as imported.
    """

    index: int
    operator: str
    shape: tuple[int, ...]
    low: float
    high: float

    def is_beyond(self, dtype: DType) -> bool:
        """Return whether `dtype` cannot hold it, or has few bits of all its elements."""
        largest = max(-self.low, self.high)
        return not (largest == 0.0 or dtype.smallest_normal <= largest <= dtype.largest)  # or NaN


@dataclass(frozen=True, slots=True)
class Watched:
    """A graph that returns the least and the greatest element of each of `indices`."""

    graph: Graph
    indices: tuple[int, ...]


def watch(graph: Graph) -> Watched:
    """Return `graph` with the range of every floating tensor as its results."""
    builder = GraphBuilder()
    for expr in graph.exprs:
        builder.add(expr)
    indices: list[int] = []
    ends: list[int] = []
    for index in sorted(graph.live):
        expr = graph[index]
        if not _is_watched(expr):
            continue
        indices.append(index)
        axes = tuple(range(len(expr.static_shape)))
        for name in ("min", "max"):
            ends.append(
                builder.operator(name, [index], (), expr.dtype, axis=axes, keepdims=False)
                if axes
                else index
            )
    return Watched(builder.graph(tuple(ends)), tuple(indices))


def _is_watched(expr: Expr) -> bool:
    if expr.op in {CONSTANT, PART} or expr.op in MOVES or expr.dtype not in _FLOATS:
        return False
    return expr.is_static and expr.elements > 0


def ranges(graph: Graph, watched: Watched, runs: Sequence[Sequence[np.ndarray]]) -> list[Range]:
    """Return the ranges over all `runs`, each of which has the results of the watched graph."""
    found = []
    for place, index in enumerate(watched.indices):
        ends = [float(run[2 * place + side].reshape(())) for run in runs for side in (0, 1)]
        expr = graph[index]
        found.append(
            Range(
                index=index,
                operator=expr.op.removeprefix("nn."),
                shape=expr.static_shape,
                low=float(np.min(ends)),  # NaN of any run stays NaN
                high=float(np.max(ends)),
            )
        )
    return found
