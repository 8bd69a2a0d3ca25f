"""Recognises the softplus that PyTorch's importers spell with a branch.

It stands before the rules, since the branch compares: what compares is no part of an epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from boltgen.frontend.normalise.call import Item, OperatorCall
from boltgen.frontend.normalise.dialect import IRExpr
from boltgen.frontend.normalise.elementwise import elementwise
from boltgen.frontend.normalise.values import Value

# From here on log(exp(x) + 1) is x in FP32.
_LEAST_LIMIT = 17.0


@dataclass(frozen=True, slots=True)
class Softplus:
    """log(exp(beta * x) + 1) / beta."""

    x: IRExpr
    beta: float


# The operands of an expression, where it is the operator with this neutral name.
Operands: TypeAlias = Callable[[IRExpr, str], Sequence[IRExpr] | None]
# The value of a constant of one element.
Number: TypeAlias = Callable[[IRExpr], float | None]


def spelled_softplus(expr: IRExpr, operands: Operands, number: Number) -> Softplus | None:
    """A softplus, where `expr` is where(beta * x > 20, x, log(exp(beta * x) + 1) / beta).

    The branch only keeps exp from overflowing; a factor or divisor of 1 may be left out.
    """
    if (parts := operands(expr, "where")) is None:
        return None
    condition, x, otherwise = parts
    logarithm, divisor = _scaled(otherwise, "divide", operands, number)
    comparison, inner = operands(condition, "greater"), operands(logarithm, "log")
    total = operands(inner[0], "add") if inner else None
    power = operands(total[0], "exp") if total else None
    if not (comparison and total and power):
        return None
    compared, factor = _scaled(comparison[0], "multiply", operands, number)
    raised, beta = _scaled(power[0], "multiply", operands, number)
    filled = operands(comparison[1], "full_like")
    limit, one = number(filled[1] if filled else comparison[1]), number(total[1])
    if not (x.same_as(compared) and x.same_as(raised) and factor == beta == divisor):
        return None
    if limit is None or limit < _LEAST_LIMIT or one != 1.0 or beta <= 0.0:
        return None
    return Softplus(x, beta)


def _scaled(expr: IRExpr, name: str, operands: Operands, number: Number) -> tuple[IRExpr, float]:
    """(x, c), where `expr` is x under the operator `name` with the number c."""
    parts = operands(expr, name)
    c = number(parts[1]) if parts else None
    return (parts[0], c) if parts and c is not None else (expr, 1.0)


def softplus(call: OperatorCall, x: Item, beta: float) -> Item | None:
    """What takes the place of `call`: a softplus of `x`."""

    def apply(name: str, *args: Item) -> Item | None:
        return elementwise(replace(call, name=name, original=None, attrs={}, args=args))

    if beta == 1.0:
        return apply("nn.softplus", x)
    assert isinstance(x, Value)
    factor = call.store.of_array(np.array(beta, x.dtype))
    bent = apply("nn.softplus", apply("multiply", x, factor))
    return apply("divide", bent, factor)
