"""Run a model in FP32, and with the least error that FP16 causes.

Both are ONNX models for ONNX Runtime to run, so that nothing of boltgen's is in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


def in_single_precision(model: Any) -> Any:
    """A copy whose FP16 tensors are FP32, the weights' values being the same."""
    single = onnx.ModelProto()
    single.CopyFrom(model)
    graph = single.graph
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.name in {"to", "dtype"} and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return single


def _widen(tensor: Any) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def with_rounded_products(model: Any) -> Any:
    """A copy whose products have FP32 operands and results of FP16's precision, sums in FP32.

    Those in the branches and bodies of control flow stay as they are.
    """
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    graph = rounded.graph
    types = _element_types(model)
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type not in _PRODUCTS:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name and types.get(name, TensorProto.FLOAT) == TensorProto.FLOAT:
                node.input[place] = f"{name}@{len(nodes)}"
                nodes += _rounding(name, node.input[place])
        result = node.output[0]
        if types.get(result, TensorProto.FLOAT) == TensorProto.FLOAT:
            node.output[0] = f"{result}@exact"
            nodes += [node, *_rounding(node.output[0], result)]
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return rounded


def _element_types(model: Any) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    known = {value.name: value.type.tensor_type.elem_type for value in values}
    return known | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _rounding(source: str, target: str) -> list[Any]:
    half = f"{target}@half"
    return [
        helper.make_node("Cast", [source], [half], to=TensorProto.FLOAT16),
        helper.make_node("Cast", [half], [target], to=TensorProto.FLOAT),
    ]
