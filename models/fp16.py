"""Compute a network as FP16 does, on any machine that runs ONNX in FP32."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def rounded_to_fp16(model: ModelProto) -> ModelProto:
    """A copy in float32 whose weights, inputs and node results are all rounded to FP16.

    Each operator still accumulates in float32, as tensor cores do. A compiler that fuses operators
    rounds less often, so this is the pessimistic bound on what FP16 costs.
    """
    rounded = ModelProto()
    rounded.CopyFrom(model)
    graph = rounded.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    nodes = list(graph.node)
    del graph.node[:]
    for value in graph.input:
        graph.node.extend(_round_trip(value.name, f"{value.name}.rounded"))
    for node in nodes:
        for position, name in enumerate(node.input):
            if any(name == value.name for value in graph.input):
                node.input[position] = f"{name}.rounded"
        if node.op_type == "Constant":
            graph.node.append(node)
            continue
        exact = f"{node.output[0]}.exact"
        result = node.output[0]
        node.output[0] = exact
        graph.node.append(node)
        graph.node.extend(_round_trip(exact, result))
    return rounded


def _round_trip(source: str, target: str) -> list[NodeProto]:
    half = f"{target}.half"
    return [
        helper.make_node("Cast", [source], [half], name=half, to=TensorProto.FLOAT16),
        helper.make_node("Cast", [half], [target], name=f"{target}.cast", to=TensorProto.FLOAT),
    ]
