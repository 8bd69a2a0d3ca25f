"""The products that kernels compute: matrix products and convolutions with their elementwise tails.

IR-neutral. A region is one of them, or several that are a chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from boltgen.frontend.anchor import ANCHORS, Anchor, match_anchor
from boltgen.frontend.epilogue_walk import Tail, grow
from boltgen.frontend.graph import Graph
from boltgen.ir.chain import ChainLayer
from boltgen.ir.dtypes import DType
from boltgen.ir.problem import Problem
from boltgen.ir.region import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product or convolution with its elementwise tail."""

    anchor: Anchor
    tail: Tail

    @property
    def members(self) -> tuple[int, ...]:
        """Its operators, those that only prepare an operand first."""
        return (*self.anchor.absorbed, *self.tail.members)

    def problem(self, graph: Graph) -> Problem:
        """What it computes, in the dtype of its result."""
        return replace(self.anchor.problem, out_dtype=DType(graph[self.tail.output].dtype))

    def layer(self, graph: Graph) -> ChainLayer:
        """It as a layer of a chain."""
        return ChainLayer(problem=self.problem(graph), epilogue=self.tail.epilogue)


def find_products(graph: Graph) -> list[Product]:
    """The products that kernels compute, with their tails; no operator is in two of them."""
    claimed: set[int] = set()
    found = []
    for index, expr in enumerate(graph.exprs):
        if expr.op not in ANCHORS:
            continue
        anchor = match_anchor(graph, index)
        if isinstance(anchor, Rejected):
            continue
        tail = grow(graph, anchor, claimed)
        claimed.update(tail.members)
        found.append(Product(anchor=anchor, tail=tail))
    return found
