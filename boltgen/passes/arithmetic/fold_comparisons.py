"""Comparisons with -inf that are known: of numbers that are all above it. For both IRs.

    any(where(seen, bias, lowest) > -inf)    ->    true

PyTorch's attention asks so which rows a float mask leaves without keys. Of a mask that hides them
with a finite number there are none.
"""

from __future__ import annotations

from math import inf

import numpy as np

from boltgen.graph.facts import is_above_minus_infinity
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Match, Number, Var, op
from boltgen.graph.rules import Rule, rewrite


def with_known_truths(graph: Graph) -> Graph:
    """`graph` with true in the place of what is greater than -inf in any case."""
    return rewrite(graph, (_RULE,))


def _unknown(found: Match) -> str | None:
    is_known = is_above_minus_infinity(found.values, found["x"])
    return None if is_known else "the value may be NaN or -inf"


def _true(found: Match, builder: GraphBuilder) -> int:
    return builder.broadcast_to(builder.constant(np.array(True)), found.expr().static_shape)


_RULE = Rule(
    name="fold `x > -inf`",
    pattern=op("greater", Var("x"), Number("bound", -inf)),
    write=_true,
    unless=_unknown,
)
