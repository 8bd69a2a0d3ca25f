"""Comparisons with -inf that are known: of numbers that are all above it. For both IRs.

    any(where(seen, bias, lowest) > -inf)    ->    true

PyTorch's attention asks so which rows a float mask leaves without keys. Of a mask that hides them
with a finite number there are none.
"""

from __future__ import annotations

from functools import partial
from math import inf

import numpy as np

from boltgen.graph.graph import CONSTANT, CORNER, Graph, GraphBuilder, rewritten
from boltgen.graph.recursion import Steps, answer

_MOVES = frozenset({CORNER, "broadcast_to", "expand_dims", "permute_dims", "reshape"})


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
    return graph[bound].scalar == -inf and answer(partial(_is_above, graph), x)


def _is_above(graph: Graph, index: int) -> Steps[int, bool]:
    """Whether no element of a value is NaN or -inf."""
    expr = graph[index]
    if expr.op == CONSTANT:
        return expr.array is not None and bool((expr.array > -inf).all())
    if expr.op == "where":
        first, second = expr.args[1:]
        return (yield first) and (yield second)
    if expr.op not in _MOVES and not _is_widened(graph, index):
        return False
    return (yield expr.args[0])


def _is_widened(graph: Graph, index: int) -> bool:
    """Whether a value is cast to FP32, which no number of FP16 or BF16 is too large for."""
    expr = graph[index]
    narrow = {"float16", "bfloat16", "float32"}
    return expr.op == "astype" and expr.dtype == "float32" and graph[expr.args[0]].dtype in narrow
