"""Grows elementwise graphs node by node."""

from __future__ import annotations

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Reduction,
    Scalar,
    Softmax,
    Store,
    Unary,
)
from boltgen.ir.elementwise_nodes import whole_nodes
from boltgen.ir.functions import UnaryOp


class ElementwiseBuilder:
    """Grows an epilogue node by node; every method returns the new node's index.

    Example: `b = ElementwiseBuilder(); b.unary(UnaryOp.RELU, b.binary(BinaryOp.ADD, 0,
    b.load(LoadKind.ROW))); b.build()`.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._nodes: list[Node] = [Accumulator(whole=whole)]
        self._stores: list[Store] = []

    def _append(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def second(self) -> int:
        """Append the value of the second product of a pair."""
        return self._append(Accumulator(second=True))

    def load(
        self, kind: LoadKind, dtype: DType = DType.F16, parts: int = 1, *, hides: bool = False
    ) -> int:
        """Append an operand."""
        return self._append(Load(kind, dtype, parts, hides))

    def scalar(self, value: float) -> int:
        """Append a constant."""
        return self._append(Scalar(float(value)))

    def unary(self, op: UnaryOp, x: int, *params: float) -> int:
        """Append `op(x)`."""
        return self._append(Unary(op, x, tuple(float(p) for p in params)))

    def binary(self, op: BinaryOp, lhs: int, rhs: int) -> int:
        """Append `op(lhs, rhs)`."""
        return self._append(Binary(op, lhs, rhs))

    def cast(self, x: int, dtype: DType) -> int:
        """Append a rounding to `dtype`."""
        return self._append(Cast(x, dtype))

    def softmax(self, x: int, *, causal: bool = False) -> int:
        """Append the softmax of rows, whole or up to the diagonal; nothing may follow it."""
        return self._append(Softmax(x, causal))

    def is_whole(self, x: int) -> bool:
        """Whether node `x` is an integer of 32 bits."""
        return whole_nodes(self._nodes)[x]

    def store(
        self,
        x: int,
        kind: LoadKind = LoadKind.TENSOR,
        dtype: DType | None = None,
        reduction: Reduction | None = None,
        columns: int = 0,
    ) -> None:
        """Store node `x`; without any store the last node is the result."""
        self._stores.append(Store(x, kind, dtype, reduction, columns))

    def build(self) -> ElementwiseGraph:
        """The graph so far."""
        return ElementwiseGraph(tuple(self._nodes), tuple(self._stores))
