"""Write a QDQ model: the activation and the weight of each chosen layer are quantised.

A quantisation stands behind a tensor, in front of all its readers: a residual reads the same
integers as the layer. No quantisation stands between a layer and what is added to its result, so
that one kernel computes both. A bias stays FP32: kernels add it to the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from boltgen.quantiser.layers import Product, names_read
from boltgen.quantiser.observers import Array, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerWeight:
    """A weight's integers, with one scale for each channel on `axis`."""

    numbers: Array
    scales: Array
    axis: int


def quantised_weight(weight: Array, axis: int) -> IntegerWeight:
    """Return int8 around 0, from -127 on, for each channel: the largest magnitude becomes 127."""
    rest = tuple(each for each in range(weight.ndim) if each != axis)
    largest = np.abs(weight).max(axis=rest, keepdims=True).astype(np.float64)
    scales = np.where(largest > 0.0, largest / 127.0, 1.0)
    scales = np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32)
    numbers = np.clip(np.rint(weight / scales), -127, 127).astype(np.int8)
    return IntegerWeight(numbers=numbers, scales=scales.reshape(-1), axis=axis)


def with_quantised(
    model: onnx.ModelProto,
    layers: Sequence[Product],
    steps: Mapping[str, Step],
    weights: Mapping[str, IntegerWeight],
) -> onnx.ModelProto:
    """Return `model` with quantised activations and weights of `layers`, by the names of tensors.

    A model whose layers share a weight shares its integers.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    writer = _Writer(graph)
    activations = dict.fromkeys(each.activation for each in layers)
    replaced = {name: writer.activation(name, steps[name]) for name in activations}
    integers = {
        name: writer.weight(name, weights[name])
        for name in dict.fromkeys(each.weight for each in layers)
    }
    chosen = {each.name for each in layers}
    for node in graph.node:
        for index, name in enumerate(node.input):
            if index == 1 and node.name in chosen:
                node.input[index] = integers[name]
            elif name in replaced:
                node.input[index] = replaced[name]
    writer.finish()
    return result


class _Writer:
    """Collects nodes and constants that are put into `graph` by `finish`."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        # The nodes behind the maker of a tensor. Inputs and constants have no maker: `_first`.
        self._behind: dict[str, list[onnx.NodeProto]] = {}
        self._first: list[onnx.NodeProto] = []
        self._made = {output for node in graph.node for output in node.output}
        self._taken = {*self._made, *(each.name for each in (*graph.input, *graph.initializer))}

    def activation(self, name: str, step: Step) -> str:
        """Quantise a tensor, and return the name of the numbers that its readers get."""
        scale = self._constant(f"{name}_scale", np.asarray(step.scale, np.float32))
        zero = self._constant(f"{name}_zero_point", np.asarray(step.zero, step.dtype.numpy))
        integers, numbers = self._free(f"{name}_quantized"), self._free(f"{name}_dequantized")
        nodes = [
            helper.make_node(
                "QuantizeLinear", [name, scale, zero], [integers], f"{name}_QuantizeLinear"
            ),
            helper.make_node(
                "DequantizeLinear", [integers, scale, zero], [numbers], f"{name}_DequantizeLinear"
            ),
        ]
        if name in self._made:
            self._behind.setdefault(name, []).extend(nodes)
        else:
            self._first += nodes
        return numbers

    def weight(self, name: str, weight: IntegerWeight) -> str:
        """Store a weight's integers, and return the name of its numbers."""
        integers = self._constant(f"{name}_quantized", weight.numbers)
        scale = self._constant(f"{name}_scale", weight.scales)
        zeros = np.zeros(weight.scales.shape, weight.numbers.dtype)
        zero = self._constant(f"{name}_zero_point", zeros)
        numbers = self._free(f"{name}_dequantized")
        self._first.append(
            helper.make_node(
                "DequantizeLinear",
                [integers, scale, zero],
                [numbers],
                f"{name}_DequantizeLinear",
                axis=weight.axis,
            )
        )
        return numbers

    def finish(self) -> None:
        """Put the nodes where their inputs are known, and drop weights that nobody reads."""
        nodes = list(self._first)
        for node in self._graph.node:
            nodes.append(node)
            for output in node.output:
                nodes += self._behind.get(output, [])
        copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
        del self._graph.node[:]
        self._graph.node.extend(copies)
        read = {name for node in copies for name in names_read(node)}
        read |= {each.name for each in self._graph.output}
        kept = [each for each in self._graph.initializer if each.name in read]
        kept = [onnx.TensorProto.FromString(each.SerializeToString()) for each in kept]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)

    def _constant(self, name: str, array: Array) -> str:
        name = self._free(name)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _free(self, name: str) -> str:
        """Return a name that no tensor has yet."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
