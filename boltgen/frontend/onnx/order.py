"""The order of a graph's nodes, and which of its values are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.scope import described


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: Any) -> set[str]:
    """The names that a node reads; its graphs read what they do not make themselves."""
    found = set(filter(None, node.input))
    for graph in subgraphs(node):
        inner = {value.name for value in graph.output}.union(*map(reads, graph.node))
        own = [each.name for each in (*graph.input, *graph.initializer)]
        found |= inner.difference(own, *(each.output for each in graph.node))
    return found


def made_names(graph: Any) -> set[str]:
    """The names of what a graph's nodes make, in their graphs too."""
    found: set[str] = set()
    for node in graph.node:
        found.update(filter(None, node.output))
        for inner in subgraphs(node):
            found |= made_names(inner)
    return found


def needed(nodes: Iterable[Any], outputs: Iterable[str]) -> tuple[list[Any], set[str]]:
    """Find the nodes that `outputs` need, in order, and every name that these read."""
    names, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if names.intersection(node.output):
            kept.append(node)
            names |= reads(node)
    return kept[::-1], names


def sort_nodes(graph: Any) -> bool:
    """Put every node behind those whose results it reads, in inner graphs too; whether any moved.

    Raises:
        ModelImportError: nodes read each other's results in a circle.
    """
    moved = sum(sort_nodes(inner) for node in graph.node for inner in subgraphs(node)) > 0
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        for name in filter(None, node.output):
            makers.setdefault(name, place)
    before = {
        place: [makers[name] for name in reads(node) if name in makers]
        for place, node in enumerate(graph.node)
    }
    if all(maker < place for place, others in before.items() for maker in others):
        return moved
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
