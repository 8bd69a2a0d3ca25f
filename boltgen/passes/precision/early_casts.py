"""Cast before a reshape, not behind it: the kernel that makes the tensor casts. For both IRs.

    astype(reshape(x), float16)    ->    reshape(astype(x, float16))

x is the FP32 result of an operator, and nobody else reads it. Sums of integers are dequantised to
FP32, and the heads of an attention are a reshape of them.
"""

from __future__ import annotations

from boltgen.graph.facts import Values
from boltgen.graph.graph import CONSTANT, INPUT, Graph, GraphBuilder
from boltgen.graph.patterns import Match, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.dtypes import DType


def with_early_casts(graph: Graph) -> Graph:
    """Return `graph` with casts to FP16 and BF16 in front of reshapes of results."""
    return rewrite(graph, (_RULE,))


def _is_wide_result(values: Values, index: int) -> bool:
    expr = values[index]
    return expr.op not in {INPUT, CONSTANT} and expr.dtype == DType.F32.value


def _obstacle(found: Match) -> str | None:
    return None if found.expr().dtype in {DType.F16.value, DType.BF16.value} else ""


def _early(found: Match, builder: GraphBuilder) -> int:
    cast = found.expr()
    return builder.reshape(builder.astype(found["x"], cast.dtype), cast.static_shape)


_RULE = Rule(
    name="cast before a reshape",
    pattern=op("astype", op("reshape", Var("x", _is_wide_result), alone=True)),
    write=_early,
    unless=_obstacle,
)
