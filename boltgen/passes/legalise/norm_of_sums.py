"""An operator of graphs that no IR has: a norm of rows, given sums of their elements.

    value = (x - mean * weights) / sqrt(variance + epsilon) * scale + shift + plus

The mean and the variance belong to rows of `columns` elements, and are computed from their `sums`
and from the sums of their `squares`, (..., 1) or in several parts, (..., parts), to be added up; an
RMS norm has no `sums` and no mean. x is a product of rows that are not normed yet, and `weights`
the sums of its columns of B; or the rows themselves, without `weights`. The product's kernel
computes it; if no kernel does, it becomes operators that IRs have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from boltgen.graph.attributes import Normed
from boltgen.graph.graph import NORMED, Expr, Graph, GraphBuilder, with_each
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp
from boltgen.ir.functions import UnaryOp

# In the order of the operator's arguments.
ROLES = ("x", "sums", "squares", "weights", "scale", "shift", "plus")
_MOMENTS = frozenset({"sums", "squares"})


@dataclass(frozen=True, slots=True)
class Writing:
    """The functions by which any kind of graph writes numbers and operators; values are indices."""

    scalar: Callable[[float], int]
    unary: Callable[[UnaryOp, int], int]
    binary: Callable[[BinaryOp, int, int], int]


def normed(given: Mapping[str, int], columns: int, epsilon: float, write: Writing) -> int:
    """Write the operator; `given` has the values by the names of their roles."""
    binary = write.binary
    per_column = write.scalar(1.0 / columns)
    value = given["x"]
    variance = binary(BinaryOp.MULTIPLY, given["squares"], per_column)
    if "sums" in given:
        mean = binary(BinaryOp.MULTIPLY, given["sums"], per_column)
        square = binary(BinaryOp.MULTIPLY, mean, mean)
        # For equal elements the two differ only by rounding.
        variance = binary(BinaryOp.SUBTRACT, variance, square)
        variance = binary(BinaryOp.MAXIMUM, variance, write.scalar(0.0))
        if "weights" in given:
            mean = binary(BinaryOp.MULTIPLY, given["weights"], mean)
        value = binary(BinaryOp.SUBTRACT, value, mean)
    variance = binary(BinaryOp.ADD, variance, write.scalar(epsilon))
    value = binary(BinaryOp.MULTIPLY, value, write.unary(UnaryOp.RSQRT, variance))
    if "scale" in given:
        value = binary(BinaryOp.MULTIPLY, value, given["scale"])
    for role in ("shift", "plus"):
        if role in given:
            value = binary(BinaryOp.ADD, value, given[role])
    return value


def normed_of(expr: Expr, args: Mapping[str, int], write: Writing) -> int:
    """Write what an expression of the operator is, on `args` by the names of their roles."""
    attrs = expr.attrs.of(Normed)
    return normed(args, attrs.columns, attrs.epsilon, write)


def roles_of(expr: Expr) -> tuple[str, ...]:
    """Return the roles of an expression's arguments."""
    return expr.attrs.of(Normed).roles


def parts_of(graph: Graph, expr: Expr) -> tuple[int, ...]:
    """Return in how many parts an operator reads each of its arguments."""
    if expr.op != NORMED:
        return (1,) * len(expr.args)
    return tuple(
        graph[arg].static_shape[-1] if role in _MOMENTS else 1
        for role, arg in zip(roles_of(expr), expr.args, strict=True)
    )


def add_normed(
    builder: GraphBuilder,
    given: Mapping[str, int],
    columns: int,
    epsilon: float,
    dtype: str,
) -> int:
    """Add the operator to a graph, where it has the shape of x."""
    roles = tuple(role for role in ROLES if role in given)
    args, attrs = [given[role] for role in roles], Normed(roles, columns, epsilon)
    return builder.operator(NORMED, args, builder.shape(given["x"]), dtype, attrs)


def without_normed(graph: Graph) -> Graph:
    """Return `graph` with operators that IRs have, in FP32, in place of each of these."""
    return with_each(graph, NORMED, _written)


def _written(expr: Expr, builder: GraphBuilder) -> int:
    wide = DType.F32.value
    write = Writing(
        scalar=lambda value: builder.constant(np.array(value, np.float32)),
        unary=lambda op, x: builder.elementwise(str(op.function.operator), x),
        binary=lambda op, lhs, rhs: builder.elementwise(op.value, lhs, rhs),
    )

    def whole(role: str, x: int) -> int:
        shape = builder.shape(x)
        if role not in _MOMENTS or shape[-1] == 1:
            return x
        return builder.reduce("sum", x, (len(shape) - 1,), keepdims=True)

    args = {
        role: builder.in_dtype(whole(role, arg), wide)
        for role, arg in zip(roles_of(expr), expr.args, strict=True)
    }
    return builder.in_dtype(normed_of(expr, args, write), expr.dtype)
