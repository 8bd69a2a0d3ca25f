"""What values of a graph are for, where that decides in which precision they are computed."""

from __future__ import annotations

from boltgen.frontend.graph import Graph
from boltgen.frontend.passes.epilogue_rules import ELEMENTWISE

_CIRCULAR = frozenset({"sin", "cos", "tan"})
# Through what an angle is made of others without losing what it is.
_ANGLES = (
    ELEMENTWISE
    | {"permute_dims", "concat", "stack", "broadcast_to", "take", "strided_slice", "tile", "repeat"}
    | {"expand_dims", "squeeze", "flatten"}
)
_SOFTMAX = frozenset({"nn.softmax", "nn.log_softmax"})
# What may stand between scores and their softmax.
_ON_SCORES = frozenset({"add", "where", "reshape"})


def angles(graph: Graph) -> frozenset[int]:
    """Values of which sines are taken, and what they are made of, back to other computations.

    An angle of 1000 has half a turn of error in FP16.
    """
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        expr = graph[index]
        if expr.op in _CIRCULAR or (index in found and expr.op in _ANGLES):
            found.update(expr.args)
    return frozenset(found)


def scores(graph: Graph) -> frozenset[int]:
    """Values that nothing but a softmax reads, directly or with masks added."""
    found: set[int] = set()
    for index in range(len(graph) - 1, -1, -1):
        readers = graph.consumers[index]
        if not readers or index in graph.escaping:
            continue
        if all(
            graph[reader].op in _SOFTMAX or (reader in found and graph[reader].op in _ON_SCORES)
            for reader in readers
        ):
            found.add(index)
    return frozenset(found)
