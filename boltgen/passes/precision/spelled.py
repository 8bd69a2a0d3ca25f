"""Recognise a softmax and a softplus that several operators spell.

    exp(x - max(x)) / sum(exp(x - max(x))) -> softmax(x)
    where(beta * x > 20, x, log(exp(beta * x) + 1) / beta) -> softplus(beta * x) / beta

The rules of operators come after this: PyTorch's importers spell softplus with a branch, and
no epilogue computes a comparison.
"""

from __future__ import annotations

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import axis_of, is_float
from boltgen.graph.graph import Graph
from boltgen.graph.patterns import Either, Match, Number, Through, Var, matches, op

# From here on log(exp(x) + 1) is x in FP32.
_LEAST_LIMIT = 17.0


def spelled_softmax(graph: Graph, index: int) -> tuple[int, int] | None:
    """Return x and the axis of the softmax whose division is at `index`.

    Without its maximum it is the same function.
    """
    if not graph[index].is_static:
        return None
    for found in matches(graph, _SOFTMAX, index):
        axis = _axis(found, "sum")
        is_whole = found.shape("power") == found.shape("x") == found.shape()
        if axis is not None and is_whole and ("max" not in found or _axis(found, "max") == axis):
            return found["x"], axis
    return None


def _axis(found: Match, name: str) -> int | None:
    """Return the one axis of a reduction that keeps it."""
    return axis_of(found.expr(name)) if found.expr(name).attrs.of(Reduce).keepdims else None


def spelled_softplus(graph: Graph, index: int) -> tuple[int, float] | None:
    """Return x and beta of the softplus whose branch is at `index`.

    The branch only keeps exp from overflowing; a factor or divisor of 1 may be left out. The sum
    and its logarithm may be of a wider type.
    """
    for found in matches(graph, _SOFTPLUS, index):
        betas = {found.number(name) if name in found else 1.0 for name in _BETAS}
        beta = betas.pop()
        casts = (graph[member] for member in found.members if graph[member].op == "astype")
        is_softplus = not betas and beta > 0.0 and all(map(is_float, casts))
        if is_softplus and found.number("limit") >= _LEAST_LIMIT:
            return found["x"], beta
    return None


_X, _LIMIT = Var("x"), Number("limit")
_POWER = op("exp", Either((op("subtract", _X, op("max", _X, name="max")), _X)), name="power")
_SOFTMAX = op("divide", _POWER, op("sum", _POWER, name="sum"))
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
