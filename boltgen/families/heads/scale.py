"""Graphs of scores that only scale; kernels merge the scale into the exponential."""

from __future__ import annotations

from boltgen.ir.elementwise import Accumulator, Binary, BinaryOp, ElementwiseGraph, Scalar

_LEAST_SCALE = 2.0**-20


def scale_of(graph: ElementwiseGraph) -> float | None:
    """Return the positive number by which a graph of scores multiplies, or None if it does more.

    Return None for extreme numbers, which may overflow when they are multiplied by a logarithm's
    base.
    """
    match graph.nodes:
        case (Accumulator(second=False),):
            found = 1.0
        case (Accumulator(second=False), Scalar(value=value), Binary(lhs=0, rhs=1) as node):
            if node.op not in (BinaryOp.MULTIPLY, BinaryOp.DIVIDE) or not value:
                return None
            found = value if node.op is BinaryOp.MULTIPLY else 1.0 / value
        case _:
            return None
    return found if not graph.stores and _LEAST_SCALE <= found <= 1 / _LEAST_SCALE else None
