"""A region's graph to a `Region`: problem, epilogue, and each parameter's role. For both IRs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boltgen.frontend.anchor import ANCHORS, match_anchor
from boltgen.frontend.epilogue_walk import grow
from boltgen.frontend.graph import Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.region import Operand, Region, Rejected


def label(graph: Graph, members: tuple[int, ...]) -> str:
    """A region's operators for people: "conv2d + add + relu"."""
    return " + ".join(graph[member].op.removeprefix("nn.") for member in members)


def lower_graph(
    graph: Graph, symbol: str, leaves: Sequence[object], parameters: Sequence[object]
) -> Region | Rejected:
    """The region of a graph of one matrix product or convolution and its tail.

    `leaves` has what each of the graph's expressions stands for; some of them are `parameters`.
    """
    places = {parameter: place for place, parameter in enumerate(parameters)}
    positions = {index: places[leaf] for index, leaf in enumerate(leaves) if leaf in places}
    anchors = [index for index, expr in enumerate(graph.exprs) if expr.op in ANCHORS]
    if len(anchors) != 1:
        return Rejected(
            operator=symbol,
            reason=f"it has {len(anchors)} matrix products and convolutions; a region has one",
        )
    anchor = match_anchor(graph, anchors[0])
    if isinstance(anchor, Rejected):
        return anchor
    tail = grow(graph, anchor)
    if tail.output not in graph.escaping or len(graph.escaping) != 1:
        return Rejected(
            operator=label(graph, tail.members),
            reason="what follows the product is not one elementwise graph that a kernel can fuse",
        )
    used = (anchor.a, anchor.b, *(operand.expr for operand in tail.operands))
    name = label(graph, tail.members)
    if not all(index in positions for index in used):
        return Rejected(operator=name, reason="an operand is not a parameter of its region")
    return Region(
        symbol=symbol,
        label=name,
        problem=replace(anchor.problem, out_dtype=DType(graph[tail.output].dtype)),
        epilogue=tail.epilogue,
        parameter_count=len(parameters),
        a=positions[anchor.a],
        b=positions[anchor.b],
        operands=tuple(
            Operand(parameter=positions[operand.expr], batched=operand.batched)
            for operand in tail.operands
        ),
    )
