"""Move scalar factors from the operands of a matmul to its result: (f Q)(g K) becomes f g (Q K).

    (f Q) (g K) -> f g (Q K)

Between a factor and its product there may be views, as where heads are cut out of rows. A product's
kernel multiplies its result in registers; the operand would be read and written once more for it.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, prod

import numpy as np

from boltgen.graph.facts import NARROWED, VIEWS
from boltgen.graph.graph import CONSTANT, Graph, GraphBuilder
from boltgen.graph.patterns import Either, Match, Number, Pattern, Through, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.weights.checks import FP16_MAX


def factors_behind_products(graph: Graph) -> Graph:
    """Return `graph` with the factors of matmuls' operands after the matmuls."""
    return rewrite(graph, (_RULE,))


def _factors(found: Match) -> dict[str, float]:
    """Return the factors of the operands "a" and "b"; a divisor of zero is an infinite factor."""
    numbers = {side: found.number(f"factor {side}") for side in "ab" if f"factor {side}" in found}
    divided = {side for side in numbers if found.expr(f"scaled {side}").op == "divide"}
    return numbers | {side: 1.0 / numbers[side] if numbers[side] else inf for side in divided}


def _obstacle(found: Match) -> str | None:
    factors, product = _factors(found), found.expr()
    if not factors:
        return ""
    if product.dtype not in NARROWED:
        return f"the matmul has the type {product.dtype}"
    if any(found.values[arg].op == CONSTANT for arg in product.args):
        return "the constant operand can take the factor, or the epilogue of the matmul before"
    if len(set(product.args)) == 1:
        return "both operands are one value"
    for side, factor in factors.items():
        scaled, x = found.expr(f"scaled {side}"), found.expr(f"x {side}")
        if (x.dtype, x.shape) != (scaled.dtype, scaled.shape) or not isfinite(factor):
            return "the factor is infinite, or changes the shape or the type of the operand"
        # NaN is beyond the range too.
        if not x.largest_seen <= FP16_MAX and scaled.largest_seen <= FP16_MAX:
            return "the factor brings the operand into the range that kernels multiply"
    return None


def _hoisted(found: Match, builder: GraphBuilder) -> int:
    expr, args, factors = found.expr(), list(found.expr().args), _factors(found)
    for side in factors:
        args["ab".index(side)] = found.again(builder, f"views {side}", found[f"x {side}"])
    factor, observed = prod(factors.values()), None
    if expr.observed is not None and factor != 0.0:
        low, high = sorted(end / factor for end in expr.observed)
        observed = low, high
    product = builder.add(replace(expr, args=tuple(args), observed=observed))
    return builder.elementwise("multiply", product, builder.constant(np.array(factor, expr.dtype)))


def _operand(side: str) -> Pattern:
    scales = frozenset({"multiply", "divide"})
    factor = Number(f"factor {side}")
    scaled = op(scales, Var(f"x {side}"), factor, name=f"scaled {side}", alone=True)
    return Either((Through(VIEWS, scaled, name=f"views {side}", alone=True), Var(side)))


_RULE = Rule(
    name="hoist a scale",
    pattern=op(MATMUL, _operand("a"), _operand("b")),
    write=_hoisted,
    unless=_obstacle,
)
