"""A region's graph to a `Region`: problem, epilogue, and each parameter's role. For both IRs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from boltgen.frontend.anchor import ANCHORS, match_anchor
from boltgen.frontend.graph import Graph
from boltgen.frontend.products import Product, alike, find_products
from boltgen.ir.chain import chain_of
from boltgen.ir.region import AnyRegion, ChainRegion, LayerRoles, Operand, Region, Rejected


def label(graph: Graph, members: tuple[int, ...]) -> str:
    """A region's operators for people: "conv2d + add + relu"."""
    return " + ".join(graph[member].op.removeprefix("nn.") for member in members)


def lower_graph(
    graph: Graph,
    symbol: str,
    leaves: Sequence[object],
    parameters: Sequence[object],
    note: str = "",
) -> AnyRegion | Rejected:
    """The region of a graph of one product and its tail, or of a chain of them.

    `leaves` has what each of the graph's expressions stands for; some of them are `parameters`.
    """
    anchors = [index for index, expr in enumerate(graph.exprs) if expr.op in ANCHORS]
    if not anchors:
        return Rejected(operator=symbol, reason="it has no matrix product and no convolution")
    for index in anchors:
        matched = match_anchor(graph, index)
        if isinstance(matched, Rejected):
            return matched
    products = alike(find_products(graph))
    name = " + ".join(label(graph, product.tail.members) for product in products)
    for before, product in itertools.pairwise(products):
        if product.anchor.a != before.tail.output:
            return Rejected(operator=name, reason="its products are no chain")
    first, last = products[0], products[-1]
    if graph.escaping != {last.output}:
        return Rejected(
            operator=name,
            reason="what follows the product is not one elementwise graph that a kernel can fuse",
        )
    places = {parameter: place for place, parameter in enumerate(parameters)}
    positions = {index: places[leaf] for index, leaf in enumerate(leaves) if leaf in places}
    used = {first.input, *(index for product in products for index in _reads(product))}
    if not used <= positions.keys():
        return Rejected(operator=name, reason="an operand is not a parameter of its region")
    a = positions[first.input]
    a_stored = first.entry.stored if first.entry else None
    d_stored = last.exit.stored if last.exit else None
    if len(products) > 1:
        return ChainRegion(
            symbol=symbol,
            label=name,
            chain=chain_of(tuple(product.layer(graph) for product in products)),
            parameter_count=len(parameters),
            a=a,
            layers=tuple(_roles(product, positions) for product in products),
            note=note,
            a_stored=a_stored,
            d_stored=d_stored,
        )
    roles = _roles(first, positions)
    return Region(
        symbol=symbol,
        label=name,
        problem=first.problem(graph),
        epilogue=first.tail.epilogue,
        parameter_count=len(parameters),
        a=a,
        b=roles.b,
        operands=roles.operands,
        note=note,
        a_stored=a_stored,
        d_stored=d_stored,
    )


def _reads(product: Product) -> Iterator[int]:
    """What a product reads besides its A."""
    yield product.anchor.b
    yield from (operand.expr for operand in product.tail.operands)


def _roles(product: Product, positions: Mapping[int, int]) -> LayerRoles:
    return LayerRoles(
        b=positions[product.anchor.b],
        operands=tuple(
            Operand(parameter=positions[operand.expr], batched=operand.batched)
            for operand in product.tail.operands
        ),
    )
