"""Sums of a tensor and several constants, as of the tensor and one constant. For both IRs.

    (words + kinds) + places    ->    words + (kinds + places)

So BERT's embeddings are written where all tokens are of one kind. The constants may be corners of
open sizes, and what is made of sizes alone: `passes.movement.dynamic_shape_constants` and
`passes.precision` compute it. A single number is left where it is: it may be part of a function, as
the 3 of relu6(x + 3) / 6 is.
"""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.facts import has_one_reader, is_float, is_static_call, is_without_inputs
from boltgen.graph.graph import Graph, GraphBuilder, rewritten
from boltgen.ir.extent import broadcast


def with_sums_of_constants(graph: Graph) -> Graph:
    """`graph`, in which what is added to a sum with a constant is added to that constant."""
    found = {i: split for i in range(len(graph)) if (split := _split(graph, i)) is not None}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        x, *constants = (names[each] for each in found[index])
        total = builder.elementwise("add", *constants)
        names[index] = builder.add(replace(graph[index], args=(x, total), origin=None))

    return rewritten(graph, found, write)


def _split(graph: Graph, index: int) -> tuple[int, int, int] | None:
    """x, c and d of a sum (x + c) + d, whose constants are no larger together."""
    outer = _sum(graph, index)
    if outer is None or not has_one_reader(graph, outer[0]):
        return None
    inner = _sum(graph, outer[0])
    if inner is None:
        return None
    shapes = [graph[each].static_shape for each in (inner[1], outer[1])]
    return (*inner, outer[1]) if broadcast(*shapes) in shapes else None


def _sum(graph: Graph, index: int) -> tuple[int, int] | None:
    """A tensor and the constant that is added to it."""
    expr = graph[index]
    if expr.op != "add" or is_without_inputs(graph, index) or expr.pinned or not is_float(expr):
        return None
    tensors = [arg for arg in expr.args if not is_without_inputs(graph, arg)]
    constants = [arg for arg in expr.args if is_without_inputs(graph, arg)]
    if len(tensors) != 1 or not is_static_call(graph, index):
        return None
    if graph[constants[0]].elements == 1:
        return None
    return tensors[0], constants[0]
