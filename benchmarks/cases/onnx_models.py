"""Small ONNX models, and what ONNX Runtime makes of one before and after it is prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from boltgen.frontend.onnx import Prepared, prepare
from boltgen.frontend.relax.onnx_reader import converter

Arrays = Mapping[str, np.ndarray[Any, Any]]
node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    constants: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    dtype: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of nodes, with inputs by name and shape and constants by name."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [
            numpy_helper.from_array(np.asarray(array), name)
            for name, array in (constants or {}).items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def prepared(made: onnx.ModelProto, **shapes: tuple[int | str, ...]) -> Prepared:
    """A model as the converter to Relax gets it."""
    return prepare(made, shapes, converter())


def operators(made: onnx.ModelProto) -> list[str]:
    """The operators of a model, in order."""
    return [each.op_type for each in made.graph.node]


def results(made: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime computes, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    found: list[np.ndarray[Any, Any]] = session.run(None, dict(inputs))
    return found


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers of a normal distribution, FP32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_same(made: onnx.ModelProto, after: onnx.ModelProto, inputs: Arrays) -> None:
    """Check that a prepared model computes what it did, in FP32."""
    pairs = zip(results(made, inputs), results(after, inputs), strict=True)
    for wanted, actual in pairs:
        assert actual.dtype == wanted.dtype
        assert actual.shape == wanted.shape
        # Sums of at most 64 terms of size 1 to 4, in another order: 64 * 4 * 2^-24.
        np.testing.assert_allclose(actual, wanted, rtol=2**-16, atol=2**-16)
