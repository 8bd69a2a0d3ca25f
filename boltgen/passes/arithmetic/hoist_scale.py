"""Move scalar factors from the operands of a matmul to its result: (f Q)(g K) becomes f g (Q K).

    (f Q) (g K) -> f g (Q K)

Between a factor and its product there may be views, as where heads are cut out of rows. A product's
kernel multiplies its result in registers; the operand would be read and written once more for it.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from boltgen.graph.facts import VIEWS, is_read_once
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.weights.checks import FP16_MAX

_FLOATS = frozenset({"float16", "float32"})


def factors_behind_products(graph: Graph) -> Graph:
    """Return `graph` with the factors of matmuls' operands after the matmuls."""
    found: dict[int, float] = {}
    dropped: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        factors = _factors(graph, expr) if expr.op == MATMUL else {}
        if factors and expr.dtype in _FLOATS and expr.is_static:
            found[index] = float(np.prod(list(factors.values())))
            dropped.update(factors)
    if not found:
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in dropped:
            names[index] = names[expr.args[0]]
            continue
        made = renamed(expr, names)
        if index in found:
            made = replace(made, observed=_before(expr.observed, found[index]))
        names[index] = builder.add(made)
        if index in found:
            factor = builder.constant(np.array(found[index], expr.dtype))
            scaled = builder.elementwise("multiply", names[index], factor)
            builder.exprs[scaled] = replace(builder[scaled], observed=expr.observed)
            names[index] = scaled
    return builder.graph(mapped(graph.results, names))


def _before(observed: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    """Return the range of a factor's operand, from the range of the result."""
    if observed is None or factor == 0.0:
        return None
    low, high = sorted(end / factor for end in observed)
    return low, high


def _factors(graph: Graph, product: Expr) -> dict[int, float]:
    """Return the operators that only multiply an operand by a number, and the numbers."""
    if any(graph[arg].op == CONSTANT for arg in product.args):
        return {}  # there the weights take it, or the epilogue of the product before
    if product.args[0] == product.args[1]:
        return {}
    factors: dict[int, float] = {}
    for at in product.args:
        place = at
        while _is_view(graph, place) and is_read_once(graph, place):
            place = graph[place].args[0]
        number = _number(graph, place)
        if number is not None and place not in factors:
            factors[place] = number
    return factors


def _number(graph: Graph, index: int) -> float | None:
    """Return the number by which an operator with one reader only multiplies, or None."""
    expr = graph[index]
    if expr.op not in {"multiply", "divide"} or not is_read_once(graph, index):
        return None
    x, by = expr.args
    number = graph[by].scalar
    if number is None or not isfinite(number) or graph[x].dtype != expr.dtype:
        return None
    if graph[x].shape != expr.shape or expr.dtype not in _FLOATS:
        return None
    if _is_large(graph[x]) and not _is_large(expr):
        return None  # it brings the operand into the range that kernels multiply
    if expr.op == "multiply":
        return number
    return 1.0 / number if number else None


def _is_large(expr: Expr) -> bool:
    """Return whether a value was observed to leave FP16's range."""
    return not expr.largest_seen <= FP16_MAX  # NaN is beyond too


def _is_view(graph: Graph, index: int) -> bool:
    """Return whether an operator has the elements of its first operand, each of them once."""
    expr = graph[index]
    is_same = expr.op == "broadcast_to" and graph[expr.args[0]].shape == expr.shape
    return expr.op in VIEWS or is_same
