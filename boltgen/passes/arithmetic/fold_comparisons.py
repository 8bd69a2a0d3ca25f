"""Comparisons with -inf that are known: of numbers that are all above it. For both IRs.

    any(where(seen, bias, lowest) > -inf)    ->    true

PyTorch's attention asks so which rows a float mask leaves without keys. Of a mask that hides them
with a finite number there are none.
"""

from __future__ import annotations

from math import inf

import numpy as np

from boltgen.graph.facts import is_above_minus_infinity
from boltgen.graph.graph import Graph, GraphBuilder, rewritten


def with_known_truths(graph: Graph) -> Graph:
    """`graph` with true in the place of what is greater than -inf in any case."""
    found = {index for index in range(len(graph)) if _is_true(graph, index)}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        true = builder.constant(np.array(True))
        shape = graph[index].static_shape
        names[index] = builder.operator("broadcast_to", [true], shape, "bool")

    return rewritten(graph, found, write)


def _is_true(graph: Graph, index: int) -> bool:
    expr = graph[index]
    if expr.op != "greater" or not expr.is_static:
        return False
    x, bound = expr.args
    return graph[bound].scalar == -inf and is_above_minus_infinity(graph, x)
