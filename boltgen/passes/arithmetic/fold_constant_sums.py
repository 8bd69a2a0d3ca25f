"""Sums of a tensor and several constants, as of the tensor and one constant. For both IRs.

    (words + kinds) + places    ->    words + (kinds + places)

So BERT's embeddings are written where all tokens are of one kind. The constants may be corners of
open sizes, and what is made of sizes alone: `passes.movement.dynamic_shape_constants` and
`passes.precision` compute it. A single number is left where it is: it may be part of a function, as
the 3 of relu6(x + 3) / 6 is.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.facts import has_input, is_float, is_without_inputs
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Match, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.extent import broadcast


def with_sums_of_constants(graph: Graph) -> Graph:
    """`graph`, in which what is added to a sum with a constant is added to that constant."""
    return rewrite(graph, (_RULE,))


def _obstacle(found: Match) -> str | None:
    if not is_float(found.expr()):
        return "it counts"
    if any(found.expr(name).elements == 1 for name in ("c", "d")):
        return "a constant is a single number"
    shapes = [found.expr(name).static_shape for name in ("c", "d")]
    return None if broadcast(*shapes) in shapes else "the constants are larger together"


def _sum(found: Match, builder: GraphBuilder) -> int:
    constants = builder.elementwise("add", found["c"], found["d"])
    return builder.add(replace(found.expr(), args=(found["x"], constants), origin=None))


_X, _C, _D = Var("x", has_input), Var("c", is_without_inputs), Var("d", is_without_inputs)
_RULE = Rule(
    name="add constants to each other",
    pattern=op("add", op("add", _X, _C, alone=True), _D),
    write=_sum,
    unless=_obstacle,
)
