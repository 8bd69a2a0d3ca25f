"""Epilogues in PyTorch, in FP32: a reference that shares nothing with boltgen's oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Scalar,
    Unary,
)
from boltgen.ir.functions import UnaryOp


def evaluated(torch: Any, epilogue: ElementwiseGraph, product: Any, operands: Sequence[Any]) -> Any:
    """What `epilogue` makes of `product`, (..., M, N) or (N, P, Q, K); operands in load order."""
    unary, binary = _unary(torch), _binary(torch)
    waiting = iter(operands)
    values: list[Any] = []
    for node in epilogue.nodes:
        match node:
            case Accumulator():
                values.append(product)
            case Load(kind=kind):
                values.append(_spread(next(waiting), kind, product))
            case Scalar(value=value):
                values.append(torch.tensor(value, dtype=torch.float32, device=product.device))
            case Cast(x=x, dtype=dtype):
                to = torch.float16 if dtype is DType.F16 else torch.float32
                values.append(values[x].to(to).float())
            case Binary(op=bop, lhs=lhs, rhs=rhs):
                values.append(binary[bop](values[lhs], values[rhs]))
            case Unary(op=op, x=x, params=params):
                values.append(unary[op](values[x], *params))
    return values[-1].expand(product.shape)


def _spread(operand: Any, kind: LoadKind, product: Any) -> Any:
    """An operand in a shape that broadcasts to the product's; a column has an element a row."""
    if kind is not LoadKind.COLUMN:
        return operand
    rows = product.shape[:-1] if operand.numel() == product.shape[:-1].numel() else (-1,)
    return operand.reshape(*rows, 1)


def _unary(torch: Any) -> Mapping[UnaryOp, Callable[..., Any]]:
    functional = torch.nn.functional
    return {
        UnaryOp.NEGATE: torch.neg,
        UnaryOp.ABS: torch.abs,
        UnaryOp.SQRT: torch.sqrt,
        UnaryOp.RSQRT: torch.rsqrt,
        UnaryOp.EXP: torch.exp,
        UnaryOp.LOG: torch.log,
        UnaryOp.ERF: torch.erf,
        UnaryOp.TANH: torch.tanh,
        UnaryOp.RELU: functional.relu,
        UnaryOp.LEAKY_RELU: functional.leaky_relu,
        UnaryOp.CLIP: torch.clamp,
        UnaryOp.GELU_ERF: functional.gelu,
        UnaryOp.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
        UnaryOp.SIGMOID: torch.sigmoid,
        UnaryOp.SILU: functional.silu,
        UnaryOp.HARDSIGMOID: lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0.0, 1.0),
        UnaryOp.HARDSWISH: functional.hardswish,
        UnaryOp.SOFTPLUS: functional.softplus,
        UnaryOp.MISH: functional.mish,
        UnaryOp.RELU6: functional.relu6,
        UnaryOp.QUICK_GELU: lambda x: x * torch.sigmoid(1.702 * x),
        UnaryOp.ELU: functional.elu,
        UnaryOp.SELU: functional.selu,
    }


def _binary(torch: Any) -> Mapping[BinaryOp, Callable[..., Any]]:
    return {
        BinaryOp.ADD: torch.add,
        BinaryOp.SUBTRACT: torch.sub,
        BinaryOp.MULTIPLY: torch.mul,
        BinaryOp.DIVIDE: torch.div,
        BinaryOp.MAXIMUM: torch.maximum,
        BinaryOp.MINIMUM: torch.minimum,
    }
