"""Epilogues of products of integers, for the tests of several families."""

from __future__ import annotations

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp


def scaled(b: ElementwiseBuilder, *, by_channel: bool, scale: float = 2**-12) -> int:
    """Sums and a correction for each column, as FP32, times a scale."""
    whole = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, DType.I32))
    factor = b.load(LoadKind.ROW, DType.F32) if by_channel else b.scalar(scale)
    return b.binary(BinaryOp.MULTIPLY, b.cast(whole, DType.F32), factor)


def _quantised(b: ElementwiseBuilder, x: int, zero: float, low: float, high: float) -> int:
    """The nearest integer, half to even, around a zero point and within a type."""
    return b.unary(
        UnaryOp.CLIP, b.binary(BinaryOp.ADD, b.unary(UnaryOp.ROUND, x), b.scalar(zero)), low, high
    )


def requantised(
    *, by_channel: bool = True, low: float = -128, zero: float = -5
) -> ElementwiseGraph:
    """A ReLU between sums and a type of 8 bits."""
    b = ElementwiseBuilder(whole=True)
    x = b.unary(UnaryOp.RELU, scaled(b, by_channel=by_channel))
    _quantised(b, x, zero, low, low + 255)
    return b.build()


def with_residual() -> ElementwiseGraph:
    """A residual of integers is added, and the sum divided by a scale that is no power of two."""
    b = ElementwiseBuilder(whole=True)
    x = scaled(b, by_channel=True)
    shifted = b.binary(BinaryOp.SUBTRACT, b.load(LoadKind.TENSOR, DType.I8), b.scalar(7))
    total = b.binary(BinaryOp.ADD, x, b.binary(BinaryOp.MULTIPLY, shifted, b.scalar(0.37)))
    _quantised(b, b.binary(BinaryOp.DIVIDE, total, b.scalar(0.83)), 3, -128, 127)
    return b.build()


def floats(op: UnaryOp) -> ElementwiseGraph:
    """A function of the scaled sums."""
    b = ElementwiseBuilder(whole=True)
    b.unary(op, scaled(b, by_channel=False))
    return b.build()
