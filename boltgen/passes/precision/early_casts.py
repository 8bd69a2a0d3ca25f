"""Cast before a reshape, not behind it: the kernel that makes the tensor casts. For both IRs.

    astype(reshape(x), float16)    ->    reshape(astype(x, float16))

x are sums of integers, which are dequantised to FP32, with a bias perhaps, and nobody else reads
them. The heads of an attention are a reshape of them. Other products are stored in FP16 anyway.
"""

from __future__ import annotations

from boltgen.graph.facts import Values
from boltgen.graph.graph import CONSTANT, Graph, GraphBuilder
from boltgen.graph.patterns import Match, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.dtypes import DType
from boltgen.passes.quantisation.sink_dequantise import DEQUANTISE


def with_early_casts(graph: Graph) -> Graph:
    """Return `graph` with casts to FP16 and BF16 in front of reshapes of results."""
    return rewrite(graph, (_RULE,))


def _are_sums(values: Values, index: int) -> bool:
    """Return whether a value is dequantised, or a sum of such a one and constants."""
    while values[index].op == "add":
        computed = [arg for arg in values[index].args if values[arg].op != CONSTANT]
        if len(computed) != 1:
            return False
        (index,) = computed
    return values[index].op == DEQUANTISE and values[index].dtype == DType.F32.value


def _obstacle(found: Match) -> str | None:
    return None if found.expr().dtype in {DType.F16.value, DType.BF16.value} else ""


def _early(found: Match, builder: GraphBuilder) -> int:
    cast = found.expr()
    return builder.reshape(builder.astype(found["x"], cast.dtype), cast.static_shape)


_RULE = Rule(
    name="cast before a reshape",
    pattern=op("astype", op("reshape", Var("x", _are_sums), alone=True)),
    write=_early,
    unless=_obstacle,
)
