"""Epilogues of pairs of products: an activation of the one, times the other."""

from __future__ import annotations

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp


def gated(
    op: UnaryOp, *, biases: DType | None = None, normed: bool = False, residual: bool = False
) -> ElementwiseGraph:
    """`op` of the first product, times the second one.

    Both have a bias of the type `biases`, or a factor of each row, or the result is added to a full
    tensor.
    """
    b = ElementwiseBuilder()
    gate, up = 0, b.second()
    if normed:
        column = b.load(LoadKind.COLUMN, DType.F32)
        gate, up = (b.binary(BinaryOp.MULTIPLY, each, column) for each in (gate, up))
    if biases is not None:
        gate, up = (
            b.binary(BinaryOp.ADD, each, b.load(LoadKind.ROW, biases)) for each in (gate, up)
        )
    x = b.binary(BinaryOp.MULTIPLY, b.unary(op, gate), up)
    if residual:
        b.binary(BinaryOp.ADD, x, b.load(LoadKind.TENSOR))
    return b.build()
