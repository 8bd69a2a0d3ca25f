"""Tensors of places, and indexing with all of them, which is a reshape. For both IRs.

    index_tensor(mask (B, S), (arange(B) as (B, 1, 1, 1), arange(S) as (1, 1, 1, S)))
    ->  reshape(mask, (B, 1, 1, S))

So transformers takes a tokenizer's mask, and the places of rows and keys for a causal one.
"""

from __future__ import annotations

from math import prod

from boltgen.graph.facts import counts, is_static_call
from boltgen.graph.graph import Expr, Graph, GraphBuilder, rewritten

_INDEX = "index_tensor"


def indexed_by_all_places(graph: Graph) -> Graph:
    """`graph` with reshapes for what takes all elements of a tensor in their order."""
    found = {index for index in graph.operators.get(_INDEX, ()) if _is_whole(graph, index)}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        expr = graph[index]
        names[index] = builder.reshape(names[expr.args[0]], expr.static_shape)

    return rewritten(graph, found, write)


def _is_whole(graph: Graph, index: int) -> bool:
    """Whether an index has all places of each dimension, and they stay in their order."""
    expr = graph[index]
    if not is_static_call(graph, index):
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
