"""Which regions a graph has, what they are called, and where its operators run. For both IRs.

Fixed patterns cannot enumerate every elementwise graph, so neither frontend uses TVM's pattern
passes: the walk decides what a region is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from boltgen.errors import InvalidProblemError
from boltgen.frontend.anchor import ANCHORS, match_anchor
from boltgen.frontend.chains import join
from boltgen.frontend.graph import OPAQUE, Graph
from boltgen.frontend.products import Product, find_products
from boltgen.ir.chain import Cutter, separate
from boltgen.ir.region import AnyRegion, Placement, Rejected

# The name by which TVM finds the code generator.
CODEGEN = "boltgen"

# The attribute of a region's function that has its note.
NOTE = "boltgen_note"

_NOT_AN_ANCHOR = "not a matrix product or convolution"
NO_GRAPH = "boltgen does not look into branches and calls"


@dataclass(frozen=True, slots=True)
class Found:
    """A region of a function, before it has a function of its own.

    `reason` says why its last product is, or is not, one kernel with a neighbour.
    """

    products: tuple[Product, ...]
    reason: str = ""

    @property
    def members(self) -> tuple[int, ...]:
        """Its operators, each after those that it reads."""
        return tuple(member for product in self.products for member in product.members)

    @property
    def output(self) -> int:
        """The operator whose result is the region's."""
        return self.products[-1].output


def find_regions(graph: Graph, cut: Cutter = separate) -> list[Found]:
    """The regions of a graph; `cut` says which products become one kernel."""
    return [
        Found(joined.products, joined.reason) for joined in join(graph, find_products(graph), cut)
    ]


class Symbols:
    """Names for regions' functions: nothing of the model's text reaches C++ or the file system."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._count = 0

    def fresh(self, graph: Graph, found: Found) -> str:
        """A name that no function of the module has."""
        operator = re.sub(
            r"[^a-z0-9]", "_", graph[found.products[0].anchor.index].op.removeprefix("nn.")
        )
        while True:
            symbol = f"boltgen_{self._count}_{operator}"
            self._count += 1
            if symbol not in self._taken:
                self._taken.add(symbol)
                return symbol


def in_order(lowered: Iterable[tuple[str, AnyRegion | Rejected]]) -> tuple[AnyRegion, ...]:
    """Regions in the order of their symbols' numbers, from what each symbol was lowered to.

    Raises:
        InvalidProblemError: one cannot be lowered; the message has its operators and the reason.
    """
    regions = []
    for symbol, region in lowered:
        if isinstance(region, Rejected):
            raise InvalidProblemError(f"region {symbol} ({region.operator}): {region.reason}")
        regions.append(region)
    return tuple(sorted(regions, key=lambda region: _number(region.symbol)))


def _number(symbol: str) -> tuple[int, str]:
    found = re.match(r"boltgen_(\d+)_", symbol)
    return (int(found[1]) if found else -1, symbol)


def stays(graph: Graph, index: int, shape: tuple[int, ...], callee: str) -> Placement:
    """The placement of an operator that is left to TVM, with the reason.

    `callee` is what an opaque expression calls.
    """
    expr = graph[index]
    name, reason = expr.op.removeprefix("nn."), _NOT_AN_ANCHOR
    if expr.op in ANCHORS:
        rejected = match_anchor(graph, index)
        reason = rejected.reason if isinstance(rejected, Rejected) else reason
    elif expr.op == OPAQUE:
        name, reason = callee, NO_GRAPH
    return Placement(operator=name, shape=shape, region=None, reason=reason)


def offloaded(region: AnyRegion, shape: tuple[int, ...]) -> Placement:
    """The placement of a call of `region`."""
    return Placement(operator=region.label, shape=shape, region=region.symbol, reason=region.note)
