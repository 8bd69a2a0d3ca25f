"""From a region's Relay function to a `Region`: problem, epilogue, and each parameter's role.

Arrow: lower. Roles are found by walking the body, never by position: one parameter may have two.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import relay

from boltgen.frontend.anchor import ANCHORS, Anchor, match_anchor
from boltgen.frontend.epilogue_walk import Tail, grow
from boltgen.frontend.graph import Graph
from boltgen.frontend.relay.translate import Translation, translate
from boltgen.ir.dtypes import DType
from boltgen.ir.region import Operand, Region, Rejected


def label(graph: Graph, members: tuple[int, ...]) -> str:
    """A region's operators for people: "conv2d + add + relu"."""
    return " + ".join(graph[member].op.removeprefix("nn.") for member in members)


def lower(function: relay.Function) -> Region | Rejected:
    """The region that a function of one matrix product or convolution and its tail computes.

    The function's types are known; its attribute "global_symbol" becomes the region's symbol.
    """
    symbol = str(function.attrs["global_symbol"])
    translation = translate(function)
    graph = translation.graph
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
    return _region(function, translation, anchor, tail)


def _region(
    function: relay.Function, translation: Translation, anchor: Anchor, tail: Tail
) -> Region | Rejected:
    graph, leaves = translation.graph, translation.leaves
    positions = {param: position for position, param in enumerate(function.params)}
    used = (anchor.a, anchor.b, *(operand.expr for operand in tail.operands))
    name = label(graph, tail.members)
    if not all(leaves[index] in positions for index in used):
        return Rejected(operator=name, reason="an operand is not a parameter of its region")
    return Region(
        symbol=str(function.attrs["global_symbol"]),
        label=name,
        problem=replace(anchor.problem, out_dtype=DType(graph[tail.output].dtype)),
        epilogue=tail.epilogue,
        parameter_count=len(function.params),
        a=positions[leaves[anchor.a]],
        b=positions[leaves[anchor.b]],
        operands=tuple(
            Operand(parameter=positions[leaves[operand.expr]], batched=operand.batched)
            for operand in tail.operands
        ),
    )
