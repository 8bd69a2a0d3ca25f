"""Masks that choose between scores and a number, as numbers that a kernel takes a minimum with.

    softmax(where(seen, scores, lowest)) -> softmax(minimum(scores, where(seen, inf, lowest)))

A kernel loads numbers and no truths. No score is below the lowest number of its type, so both are
the same where the scores are no NaN.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from boltgen.graph.graph import Expr, Graph, GraphBuilder, renamed, rewritten
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.dtypes import DType

_SOFTMAX = "nn.softmax"
# What scores go through before a softmax: types and shapes, and other masks, whose shape is no
# larger than theirs.
_VIEWS, _MASKS = frozenset({"astype", "reshape"}), frozenset({"add", "clip", "minimum", "where"})


def masks_as_bounds(graph: Graph) -> Graph:
    """`graph` with each choice between scores and the lowest number as a minimum."""
    scores: dict[int, bool] = {}
    lowest = {index: _lowest(graph, index, scores) for index in range(len(graph))}
    bounded = {index: which for index, which in lowest.items() if which}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        names[index] = _bounded(builder, renamed(graph[index], names), bounded[index])

    return rewritten(graph, bounded, write)


def _lowest(graph: Graph, index: int, scores: dict[int, bool]) -> int:
    """Which operand of a mask of scores is the lowest number, 1 or 2; 0 for anything else.

    `scores` has what is known of values before a softmax.
    """
    expr = graph[index]
    known = {dtype.value: dtype for dtype in (DType.F16, DType.F32)}
    if expr.op != "where" or not expr.is_static or expr.dtype not in known:
        return 0
    if not all(graph[arg].is_static for arg in expr.args):
        return 0
    if not answer(partial(_is_score, graph), index, scores):
        return 0
    least = float(np.finfo(known[expr.dtype].numpy).min)
    numbers = [graph[arg].scalar for arg in expr.args[1:]]
    found = [which for which, number in enumerate(numbers, 1) if number is not None]
    is_low = len(found) == 1 and (numbers[found[0] - 1] or 0.0) <= least
    return found[0] if is_low else 0


def _is_score(graph: Graph, index: int) -> Steps[int, bool]:
    """Whether a softmax reads a value, if only behind other masks, and nothing else."""
    readers = graph.consumers[index]
    if not readers or index in graph.escaping:
        return False
    for reader in readers:
        if graph[reader].op == _SOFTMAX:
            continue
        if not _is_score_still(graph, index, reader) or not (yield reader):
            return False
    return True


def _is_score_still(graph: Graph, index: int, reader: int) -> bool:
    is_as_large = graph[reader].shape == graph[index].shape
    return graph[reader].op in _VIEWS or (graph[reader].op in _MASKS and is_as_large)


def _bounded(builder: GraphBuilder, expr: Expr, lowest: int) -> int:
    seen, *choice = expr.args
    scores, low = choice[2 - lowest], choice[lowest - 1]
    high = builder.constant(np.array(np.inf, expr.dtype))
    either = (low, high) if lowest == 1 else (high, low)
    shape = builder.shape(seen)
    bound = builder.operator("where", (seen, *either), shape, expr.dtype)
    return builder.elementwise("minimum", scores, bound)
