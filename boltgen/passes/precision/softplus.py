"""Recognise the softplus that PyTorch's importers spell with a branch.

It stands before the rules, since the branch compares: what compares is no part of an epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boltgen.graph.graph import Graph
from boltgen.passes.precision.call import Item, OperatorCall
from boltgen.passes.precision.elementwise import apply
from boltgen.passes.precision.values import Value

# From here on log(exp(x) + 1) is x in FP32.
_LEAST_LIMIT = 17.0


@dataclass(frozen=True, slots=True)
class Softplus:
    """log(exp(beta * x) + 1) / beta."""

    x: int
    beta: float


def spelled_softplus(graph: Graph, index: int) -> Softplus | None:
    """A softplus, where an expression is where(beta * x > 20, x, log(exp(beta * x) + 1) / beta).

    The branch only keeps exp from overflowing; a factor or divisor of 1 may be left out.
    """
    parts = _operands(graph, index, "where")
    if len(parts) != 3:
        return None
    condition, x, otherwise = parts
    logarithm, divisor = _scaled(graph, otherwise, "divide")
    comparison = _operands(graph, condition, "greater")
    total = _operands(graph, *_operands(graph, logarithm, "log"), "add")
    power = _operands(graph, total[0], "exp") if total else ()
    if not (comparison and power):
        return None
    compared, factor = _scaled(graph, comparison[0], "multiply")
    raised, beta = _scaled(graph, power[0], "multiply")
    filled = _operands(graph, comparison[1], "full_like")
    limit = graph[filled[1] if filled else comparison[1]].scalar
    if not (x == compared == raised and factor == beta == divisor):
        return None
    if limit is None or limit < _LEAST_LIMIT or graph[total[1]].scalar != 1.0 or beta <= 0.0:
        return None
    return Softplus(x, beta)


def _operands(graph: Graph, *index_and_name: int | str) -> tuple[int, ...]:
    """Return the operands of an expression if it is the named operator, else none."""
    *indices, name = index_and_name
    if len(indices) != 1 or not isinstance(indices[0], int):
        return ()
    expr = graph[indices[0]]
    return expr.args if expr.op == name else ()


def _scaled(graph: Graph, index: int, name: str) -> tuple[int, float]:
    """Return (x, c) if an expression applies the operator `name` to x and the number c."""
    parts = _operands(graph, index, name)
    c = graph[parts[1]].scalar if parts else None
    return (parts[0], c) if parts and c is not None else (index, 1.0)


def softplus(call: OperatorCall, x: Value, beta: float) -> Item:
    """Return a softplus of `x` in place of `call`."""

    if beta == 1.0:
        return apply(call, "nn.softplus", x, attrs={"beta": 1.0})
    factor = call.store.of_array(np.array(beta, x.dtype))
    bent = apply(call, "nn.softplus", apply(call, "multiply", x, factor), attrs={"beta": 1.0})
    return apply(call, "divide", bent, factor)
