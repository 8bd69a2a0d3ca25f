"""Find the values that are written to memory in any case, be they fused or not."""

from __future__ import annotations

from boltgen.graph.graph import CONSTANT, Graph
from boltgen.passes.regions.anchor import ANCHORS
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE, VIEW


def is_written_anyway(graph: Graph, output: int) -> bool:
    """Return whether the value is a result, or a product or its epilogue reads it, if only by
    another shape.
    """
    values = [output]
    for value in values:
        readers = graph.consumers[value]
        values += (each for each in readers if graph[each].op == VIEW)
        if any(graph[r].op in ANCHORS or _follows_another(graph, r, value) for r in readers):
            return True
    return not graph.escaping.isdisjoint(values)


def _follows_another(graph: Graph, reader: int, value: int) -> bool:
    """Return whether an elementwise operator reads `value` and the result of another product."""
    others = [arg for arg in graph[reader].args if arg != value]
    return graph[reader].op in ELEMENTWISE and any(_is_of_product(graph, arg) for arg in others)


def _is_of_product(graph: Graph, index: int) -> bool:
    """Return whether one product alone made the value, and elementwise operators after it."""
    while graph[index].op in ELEMENTWISE:
        tensors = [arg for arg in graph[index].args if graph[arg].op != CONSTANT]
        if len(tensors) != 1:
            return False
        (index,) = tensors
    return graph[index].op in ANCHORS
