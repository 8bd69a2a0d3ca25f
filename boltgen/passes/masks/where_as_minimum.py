"""Rewrite masks that choose between scores and a number as a minimum, which a kernel computes.

    softmax(where(seen, scores, lowest)) -> softmax(minimum(scores, where(seen, inf, lowest)))

A kernel loads numbers and no truths. No score is below the lowest number of its type, so both are
the same where the scores are no NaN.
"""

from __future__ import annotations

import numpy as np

from boltgen.graph.facts import is_tensor, recursive_fact
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Match, Number, Pattern, Var, op
from boltgen.graph.recursion import Steps
from boltgen.graph.rules import Rule, rewrite

# Operators on scores before a softmax: types and shapes, and other masks, whose shape is no larger
# than the scores'.
_VIEWS, _MASKS = frozenset({"astype", "reshape"}), frozenset({"add", "clip", "minimum", "where"})


def masks_as_bounds(graph: Graph) -> Graph:
    """Return `graph` with each choice between scores and the lowest number as a minimum."""
    return rewrite(graph, _RULES)


def _obstacle(found: Match) -> str | None:
    dtype = found.expr().dtype
    if dtype not in {"float16", "float32"}:
        return f"kernels load no masks of {dtype}"
    if found.number("low") > np.finfo(dtype).min:
        return f"a score may be below {found.number('low')}"
    if not _is_score(found.source, found.origin):
        return "not only a softmax reads it"
    return None


@recursive_fact
def _is_score(graph: Graph, index: int) -> Steps[int, bool]:
    """Return whether only a softmax reads a value, perhaps after other masks."""
    readers = graph.consumers[index]
    if not readers or index in graph.escaping:
        return False
    for reader in readers:
        if graph[reader].op == "nn.softmax":
            continue
        is_mask = graph[reader].op in _MASKS and graph[reader].shape == graph[index].shape
        if not (is_mask or graph[reader].op in _VIEWS) or not (yield reader):
            return False
    return True


def _minimum(found: Match, builder: GraphBuilder) -> int:
    seen, *choice = found.expr().args
    high = builder.constant(np.array(np.inf, found.expr().dtype))
    x, y = (each if each == found["low"] else high for each in choice)
    bound = builder.where(seen, x, y)
    return builder.elementwise("minimum", found["scores"], bound)


def _rule(*choice: Pattern) -> Rule:
    pattern = op("where", Var("seen"), *choice)
    return Rule(name="mask by a minimum", pattern=pattern, write=_minimum, unless=_obstacle)


_SCORES, _LOW = Var("scores", is_tensor), Number("low")
_RULES = (_rule(_SCORES, _LOW), _rule(_LOW, _SCORES))
