"""The layers of an ONNX model that can multiply integers: products by a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper

from boltgen.quantiser.observers import Array

_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of `activation` by the constant `weight`, whose channels are on `axis`."""

    name: str
    operator: str
    activation: str
    weight: str
    axis: int
    output: str
    attributes: Mapping[str, Any]


def layers_of(graph: onnx.GraphProto) -> tuple[Product, ...]:
    """Return the products of one activation by one constant, in order; every node has a name."""
    constants = {
        each.name for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT
    }
    found = []
    for node in graph.node:
        if node.op_type not in _PRODUCTS or node.domain not in {"", "ai.onnx"}:
            continue
        activation, weight = node.input[:2]
        if weight not in constants or activation in constants:
            continue
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        if attributes.get("transA", 0):
            continue  # its rows are the columns of the activation
        found.append(
            Product(
                name=node.name,
                operator=node.op_type,
                activation=activation,
                weight=weight,
                axis=_channels(node.op_type, attributes),
                output=node.output[0],
                attributes=attributes,
            )
        )
    return tuple(found)


def _channels(operator: str, attributes: Mapping[str, Any]) -> int:
    if operator == "Conv" or (operator == "Gemm" and attributes.get("transB", 0)):
        return 0
    return 1


def weights_of(graph: onnx.GraphProto, layers: Sequence[Product]) -> dict[str, Array]:
    """Return the weights of layers by name."""
    wanted = {each.weight for each in layers}
    return {
        each.name: numpy_helper.to_array(each) for each in graph.initializer if each.name in wanted
    }


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, within its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for each in (attribute.g, *attribute.graphs):
            for inner in each.node:
                yield from names_read(inner)
            yield from (output.name for output in each.output)


def with_names(graph: onnx.GraphProto) -> None:
    """Give every node a name of its own: its first result's where it has none."""
    seen, taken = set[str](), {each.name for each in graph.node}
    for node in graph.node:
        name = node.name or node.output[0]
        while name in seen or (name in taken and name != node.name):
            name += "_"
        node.name = name
        seen.add(name)
