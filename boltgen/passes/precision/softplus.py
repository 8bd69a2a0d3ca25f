"""Recognises the softplus that PyTorch's importers spell with a branch.

It stands before the rules, since the branch compares: what compares is no part of an epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boltgen.graph.attributes import Sharpness
from boltgen.graph.facts import is_float
from boltgen.graph.graph import Graph
from boltgen.graph.patterns import Either, Number, Through, Var, matches, op
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

    The branch only keeps exp from overflowing; a factor or divisor of 1 may be left out. The sum
    and its logarithm may be of a wider type.
    """
    for found in matches(graph, _SOFTPLUS, index):
        betas = {found.number(name) if name in found else 1.0 for name in _BETAS}
        beta = betas.pop()
        casts = (graph[member] for member in found.members if graph[member].op == "astype")
        is_softplus = not betas and beta > 0.0 and all(map(is_float, casts))
        if is_softplus and found.number("limit") >= _LEAST_LIMIT:
            return Softplus(found["x"], beta)
    return None


_X, _LIMIT = Var("x"), Number("limit")
_BETAS = ("factor", "beta", "divisor")
_COMPARED, _RAISED = (Either((op("multiply", _X, Number(each)), _X)) for each in _BETAS[:2])
_EXP = Through(frozenset({"astype"}), op("exp", _RAISED))
_LOG = Through(frozenset({"astype"}), op("log", op("add", _EXP, Number("one", 1.0))))
_SOFTPLUS = op(
    "where",
    op("greater", _COMPARED, Either((_LIMIT, op("full_like", Var("like"), _LIMIT)))),
    _X,
    Either((op("divide", _LOG, Number("divisor")), _LOG)),
)


def softplus(call: OperatorCall, x: Value, beta: float) -> Item:
    """Write a softplus of `x` in place of `call`."""

    if beta == 1.0:
        return apply(call, "nn.softplus", x, attrs=Sharpness(1.0))
    factor = call.store.of_array(np.array(beta, x.dtype))
    bent = apply(call, "nn.softplus", apply(call, "multiply", x, factor), attrs=Sharpness(1.0))
    return apply(call, "divide", bent, factor)
