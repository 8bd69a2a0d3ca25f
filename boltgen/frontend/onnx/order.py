"""The order of a graph's nodes, and which of its values are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.scope import described

# Graphs in graphs: no exporter nests branches as deeply.
MOST_NESTED = 16


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: Any) -> set[str]:
    """The names that a node reads; its graphs read what they do not make themselves."""
    return _reads(node, [_free(graph, map(reads, graph.node)) for graph in subgraphs(node)])


def _reads(node: Any, of_graphs: Iterable[set[str]]) -> set[str]:
    """Return the names that a node reads, given the names that its graphs read."""
    return set(filter(None, node.input)).union(*of_graphs)


def _free(graph: Any, of_nodes: Iterable[set[str]]) -> set[str]:
    """Return the names that a graph reads and does not make, given its nodes' names."""
    inner = {value.name for value in graph.output}.union(*of_nodes)
    own = [each.name for each in (*graph.input, *graph.initializer)]
    return inner.difference(own, *(each.output for each in graph.node))


def made_names(graph: Any) -> set[str]:
    """Return the names of the values that a graph's nodes make, in inner graphs too."""
    found: set[str] = set()
    for node in graph.node:
        found.update(filter(None, node.output))
        for inner in subgraphs(node):
            found |= made_names(inner)
    return found


def needed(nodes: Iterable[Any], outputs: Iterable[str]) -> tuple[list[Any], set[str]]:
    """Find the nodes that `outputs` need, in order, and every name that these nodes read."""
    names, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if names.intersection(node.output):
            kept.append(node)
            names |= reads(node)
    return kept[::-1], names


def sort_nodes(graph: Any) -> bool:
    """Sort every node after the nodes that it reads, in inner graphs too; return whether any moved.

    Raises:
        ModelImportError: nodes read each other's results in a circle, or graphs are nested too
            deeply.
    """
    return _sort(graph, 0)[0]


def _sort(graph: Any, depth: int) -> tuple[bool, set[str]]:
    """Sort a graph's nodes; return whether any moved, and the names that it reads and does not
    make.
    """
    if depth > MOST_NESTED:
        raise ModelImportError(
            f"graphs are nested more than {MOST_NESTED} deep. Export or download the model again"
        )
    moved, read = False, []
    for node in graph.node:
        inner = [_sort(each, depth + 1) for each in subgraphs(node)]
        moved = moved or any(was_moved for was_moved, _ in inner)
        read.append(_reads(node, [names for _, names in inner]))
    return _put_in_order(graph, read) or moved, _free(graph, read)


def _put_in_order(graph: Any, read: Sequence[set[str]]) -> bool:
    """Put a graph's nodes, which read these names, in order; whether any moved."""
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        for name in filter(None, node.output):
            makers.setdefault(name, place)
    before = {
        place: [makers[name] for name in names if name in makers]
        for place, names in enumerate(read)
    }
    if all(maker < place for place, others in before.items() for maker in others):
        return False
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = ", ".join(described(graph.node[place]) for place in error.args[1][1:])
        raise ModelImportError(
            f"nodes read each other's results in a circle: {circle}. Export or download the model "
            "again"
        ) from error
    nodes = [graph.node[place] for place in order]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return True
