"""The table of operators of an epilogue, by their names in the graph. For both IRs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from boltgen.graph.attributes import Axis, Cast
from boltgen.graph.facts import BYTES
from boltgen.graph.graph import HALF, NORMED, Expr
from boltgen.ir.dtypes import CONVERTED, FLOAT8, WHOLE, DType
from boltgen.ir.elementwise import BinaryOp
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.passes.legalise.norm_of_sums import Writing, normed_of, roles_of


class NotFusibleError(Exception):
    """An operator, or one of its operands, has no place in an epilogue."""


@dataclass(frozen=True, slots=True)
class Call:
    """The context of a rule: the builder, the operator, its operands' nodes and constants."""

    builder: ElementwiseBuilder
    expr: Expr
    args: tuple[int, ...]
    scalars: tuple[float | None, ...]

    def number(self, name: str) -> float:
        """Return an attribute that is a number."""
        return float(self.expr.attrs.named()[name])


_Rule = Callable[[Call], int]


def _unary(op: UnaryOp) -> _Rule:
    return lambda call: call.builder.unary(op, call.args[0], *map(call.number, op.parameters))


def _binary(op: BinaryOp) -> _Rule:
    return lambda call: call.builder.binary(op, call.args[0], call.args[1])


def _astype(call: Call) -> int:
    target, source = call.expr.dtype, call.expr.attrs.of(Cast).from_dtype
    if target == DType.F32.value and call.builder.is_whole(call.args[0]):
        return call.builder.cast(call.args[0], DType.F32)
    if DType.I32.value in (target, source):
        raise NotFusibleError(f"a cast of {source} to {target}")
    if target == DType.F32.value:
        return call.args[0]  # arithmetic is in FP32 as it is
    if target not in CONVERTED:
        raise NotFusibleError(f"a cast to {target}")
    return call.args[0] if target == source else call.builder.cast(call.args[0], DType(target))


def _square(call: Call) -> int:
    return call.builder.binary(BinaryOp.MULTIPLY, call.args[0], call.args[0])


def _power(call: Call) -> int:
    x, exponent = call.args[0], call.scalars[1]
    if exponent == 2.0:
        return _square(call)
    if exponent == 3.0:
        return call.builder.binary(BinaryOp.MULTIPLY, _square(call), x)
    if exponent == 0.5:
        return call.builder.unary(UnaryOp.SQRT, x)
    raise NotFusibleError(f"a power with the exponent {exponent}")


def _softplus(call: Call) -> int:
    if call.number("beta") != 1.0:
        raise NotFusibleError(f"a softplus with beta={call.number('beta')}")
    return call.builder.unary(UnaryOp.SOFTPLUS, call.args[0])


def _prelu(call: Call) -> int:
    x, slope = call.args
    rank = len(call.expr.static_shape)
    if call.scalars[1] is not None:
        return call.builder.unary(UnaryOp.LEAKY_RELU, x, call.scalars[1])
    if call.number("axis") not in {-1, rank - 1}:
        raise NotFusibleError("a PReLU whose slopes are not along the last axis")
    b = call.builder
    negative = b.binary(BinaryOp.MINIMUM, x, b.scalar(0.0))
    return b.binary(
        BinaryOp.ADD, b.unary(UnaryOp.RELU, x), b.binary(BinaryOp.MULTIPLY, slope, negative)
    )


def _normed(call: Call) -> int:
    b = call.builder
    write = Writing(scalar=b.scalar, unary=b.unary, binary=b.binary)
    return normed_of(call.expr, dict(zip(roles_of(call.expr), call.args, strict=True)), write)


def _quantize(call: Call) -> int:
    """Divide, round half to even, add the zero point and clamp, each in FP32 without error but the
    division's.
    """
    dtype, b = call.expr.dtype, call.builder
    if dtype not in {*BYTES, *FLOAT8}:
        raise NotFusibleError(f"a quantisation to {dtype}; kernels store int8, uint8 and float8")
    x, scale, zero = call.args[0], call.scalars[1], call.scalars[2]
    if scale is None or zero is None:
        raise NotFusibleError("a quantisation with a scale or zero point for each channel")
    if scale != 1.0:
        x = b.binary(BinaryOp.DIVIDE, x, call.args[1])
    if dtype in FLOAT8:
        most = DType(dtype).largest
        x = b.binary(BinaryOp.ADD, x, call.args[2]) if zero else x
        return b.unary(UnaryOp.CLIP, x, -most, most)
    ends = np.iinfo(dtype)
    x = b.unary(UnaryOp.ROUND, x)
    x = b.binary(BinaryOp.ADD, x, call.args[2]) if zero else x
    return b.unary(UnaryOp.CLIP, x, float(ends.min), float(ends.max))


def _dequantize(call: Call) -> int:
    b, zero, rank = call.builder, call.scalars[2], len(call.expr.static_shape)
    x = call.args[0]
    if call.scalars[1] is None and call.expr.attrs.of(Axis).at(rank) != rank - 1:
        raise NotFusibleError("a dequantisation whose scales are not along the last axis")
    if b.is_whole(x):
        if zero != 0.0:
            raise NotFusibleError("a dequantisation of sums around a zero point")
        return b.binary(BinaryOp.MULTIPLY, b.cast(x, DType.F32), call.args[1])
    if zero is None:
        raise NotFusibleError("a dequantisation with a zero point for each channel")
    x = b.binary(BinaryOp.SUBTRACT, x, call.args[2]) if zero else x
    return b.binary(BinaryOp.MULTIPLY, x, call.args[1])


def _half(call: Call) -> int:
    if call.args[0] != 0:
        raise NotFusibleError("a half of a value that is no product")
    return call.builder.second() if call.number("index") else 0


def _same_rows(call: Call) -> int:
    return call.args[0]  # checked in `_Emission`: the last extent stays


VIEW = "reshape"

RULES: dict[str, _Rule] = {
    **{op.value: _binary(op) for op in BinaryOp},
    "power": _power,
    "square": _square,
    **{op.function.operator: _unary(op) for op in UnaryOp if op.function.operator is not None},
    "nn.prelu": _prelu,
    "nn.softplus": _softplus,
    "astype": _astype,
    "quantize": _quantize,
    "dequantize": _dequantize,
    NORMED: _normed,
    HALF: _half,
    VIEW: _same_rows,
}

ELEMENTWISE = frozenset(RULES)
# Operators of a number or of numbers along an axis, which an attribute names: where a tensor is
# seen in another shape, the axis is another one.
OF_AN_AXIS = frozenset({"nn.prelu", "quantize", "dequantize"})
# The operators on integers of an epilogue, by the type of the result: all others are of floats.
DEQUANTIZE = "dequantize"
_MAKE_INTEGERS = frozenset({"quantize", VIEW})
_ON_INTEGERS = {DType.I32.value: frozenset({"add", "subtract", VIEW})}


def check_integers(expr: Expr) -> None:
    """Check that an epilogue computes an operator, if its result is of integers.

    Raises:
        NotFusibleError: it does not.
    """
    if expr.dtype in WHOLE and expr.op not in _ON_INTEGERS.get(expr.dtype, _MAKE_INTEGERS):
        raise NotFusibleError(f"an operator that gives {expr.dtype}")
