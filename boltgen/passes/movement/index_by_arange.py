"""Tensors of places, and indexing with all of them, which is a reshape. For both IRs.

    index_tensor(mask (B, S), (arange(B) as (B, 1, 1, 1), arange(S) as (1, 1, 1, S)))
    ->  reshape(mask, (B, 1, 1, S))

So transformers takes a tokenizer's mask, and the places of rows and keys for a causal one.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, rewritten
from boltgen.graph.recursion import Steps, answer

_INDEX = "index_tensor"
_VIEWS = frozenset({"reshape", "expand_dims", "squeeze", "flatten", "astype"})


def indexed_by_all_places(graph: Graph) -> Graph:
    """`graph` with reshapes for what takes all elements of a tensor in their order."""
    found = {index for index in range(len(graph)) if _is_whole(graph, index)}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        expr = graph[index]
        names[index] = builder.reshape(names[expr.args[0]], expr.static_shape)

    return rewritten(graph, found, write)


def counts(graph: Graph, index: int) -> bool:
    """Whether a tensor has the numbers 0, 1, 2 and so on, in whatever shape."""
    return answer(partial(_counts, graph), index)


def _counts(graph: Graph, index: int) -> Steps[int, bool]:
    expr = graph[index]
    if expr.dtype == "bool":
        return False
    if expr.op in _VIEWS:
        return (yield expr.args[0])
    if expr.op == "add":
        for places, zero in (expr.args, expr.args[::-1]):
            if graph[zero].scalar == 0 and graph[places].shape == expr.shape and (yield places):
                return True
        return False
    if expr.op == CONSTANT and expr.array is not None:
        return bool((expr.array.reshape(-1) == np.arange(expr.array.size)).all())
    if expr.op != "arange":
        return False
    return expr.attrs.get("begin") == 0 and expr.attrs.get("step") == 1


def _is_whole(graph: Graph, index: int) -> bool:
    """Whether an index has all places of each dimension, and they stay in their order."""
    expr = graph[index]
    if expr.op != _INDEX or not all(graph[each].is_static for each in (index, *expr.args)):
        return False
    x, *places = expr.args
    axes: list[int] = []
    for extent, each in zip(graph[x].static_shape, places, strict=False):
        if not counts(graph, each) or graph[each].elements != extent:
            return False
        axes += _axes(graph[each], len(expr.static_shape))
    return axes == sorted(set(axes)) and prod(expr.static_shape) == graph[x].elements


def _axes(places: Expr, rank: int) -> list[int]:
    """The dimensions of a result of `rank` along which an index has several places."""
    shape = places.static_shape
    return [rank - len(shape) + axis for axis, extent in enumerate(shape) if extent != 1]
