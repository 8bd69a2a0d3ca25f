"""Move outliers of activations into weights, where a layer normalisation makes the activation.

    norm(x) * g + b, times W   ->   norm(x) * (g / s) + b / s, times (W * s)

s = max|x|^a / max|W|^(1 - a) for each channel of K, over all layers that read the tensor. Results
are the same but for rounding. Source: Xiao et al., SmoothQuant, ICML 2023, equation 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from boltgen.quantiser.layers import Product, names_read, weights_of
from boltgen.quantiser.observers import Array, Histogram

_LEAST = 1e-5


def smoothed(
    model: onnx.ModelProto,
    layers: Sequence[Product],
    seen: Mapping[str, Histogram],
    strength: float,
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model with smoother activations, and their names.

    A tensor is smoothed if constants scale it last, as those of a layer normalisation do, and
    matmuls alone read it, whose weights nobody else reads.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    arrays = {each.name: each for each in graph.initializer}
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in names_read(node):
            readers.setdefault(name, []).append(node.name)
    results = {each.name for each in graph.output}
    makers = {output: node for node in graph.node for output in node.output}
    changed = []
    for activation in dict.fromkeys(each.activation for each in layers if each.operator != "Conv"):
        factors = _factors(makers, activation, arrays, readers)
        reading = [each for each in layers if each.activation == activation]
        names = [each.name for each in reading]
        is_whole = sorted(readers.get(activation, [])) == sorted(names)
        constants = [*factors, *(each.weight for each in reading)]
        is_own = all(len(readers[each]) == 1 for each in constants)
        are_matrices = all(len(arrays[each.weight].dims) == 2 for each in reading)
        if not (factors and is_whole and is_own and are_matrices):
            continue
        if results.intersection([activation, *constants, *makers[activation].input]):
            continue
        scales = _scales(seen[activation].channels, reading, weights_of(graph, reading), strength)
        for name in factors:
            _store(arrays[name], numpy_helper.to_array(arrays[name]) / scales)
        for layer in reading:
            weight = numpy_helper.to_array(arrays[layer.weight])
            _store(arrays[layer.weight], weight * np.expand_dims(scales, layer.axis))
        changed.append(activation)
    return result, tuple(changed)


def _factors(
    makers: Mapping[str, onnx.NodeProto],
    name: str,
    constants: Mapping[str, onnx.TensorProto],
    readers: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the constants to divide, so that a tensor is divided by a row of numbers."""
    node = makers.get(name)
    if node is None:
        return []
    if node.op_type in {"LayerNormalization", "RMSNormalization"}:
        found = [each for each in node.input[1:] if each]
        return found if all(each in constants for each in found) else []
    if node.op_type not in {"Add", "Mul"}:
        return []
    own = [each for each in node.input if each in constants]
    if len(own) != 1 or node.op_type == "Mul":
        return own[:1]
    (other,) = (each for each in node.input if each not in constants)
    maker = makers.get(other)
    if maker is None or maker.op_type != "Mul" or len(readers.get(other, [])) != 1:
        return []
    below = _factors(makers, other, constants, readers)
    return [*own, *below] if below else []


def _scales(
    activation: Array, layers: Sequence[Product], weights: Mapping[str, Array], strength: float
) -> Array:
    of_weights = [np.abs(weights[each.weight]).max(axis=each.axis) for each in layers]
    weight = np.maximum(np.max(of_weights, axis=0), _LEAST)
    scales = np.maximum(activation, _LEAST) ** strength / weight ** (1.0 - strength)
    return np.asarray(np.maximum(scales, _LEAST), np.float32)


def _store(tensor: onnx.TensorProto, array: Array) -> None:
    own = numpy_helper.to_array(tensor).dtype
    tensor.CopyFrom(numpy_helper.from_array(array.astype(own), tensor.name))
