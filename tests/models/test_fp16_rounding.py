"""The FP16 simulation rounds what it says it rounds."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from models.fp16 import rounded_to_fp16
from models.onnx_graph import GraphBuilder
from models.parameters import RandomParameters


def _to_half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def test_inputs_weights_and_results_are_rounded() -> None:
    graph = GraphBuilder("test", parameters=RandomParameters(1))
    x = graph.input("input", (4, 32))
    x = graph.gemm(x, "first", features=16)
    graph.output(graph.gelu(x, "gelu"), "result")
    exact = graph.build()
    model = rounded_to_fp16(exact)
    onnx.checker.check_model(model, full_check=True)

    x_value = np.random.default_rng(0).standard_normal((4, 32), dtype=np.float32)
    model.graph.output.append(
        helper.make_tensor_value_info("first.output", onnx.TensorProto.FLOAT, [4, 16])
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result, hidden = session.run(["result", "first.output"], {"input": x_value})

    weights = [numpy_helper.to_array(tensor) for tensor in exact.graph.initializer]
    product = _to_half(x_value) @ _to_half(weights[0]).T + _to_half(weights[1])
    assert np.array_equal(hidden, _to_half(hidden))
    assert np.array_equal(result, _to_half(result))
    np.testing.assert_allclose(hidden, product, rtol=2**-10)
    assert np.abs(hidden - product).max() > 0


def test_the_original_is_left_alone() -> None:
    graph = GraphBuilder("test", parameters=RandomParameters(1))
    graph.output(graph.gemm(graph.input("input", (4, 32)), "first", features=16), "result")
    model = graph.build()
    before = model.SerializeToString()
    rounded_to_fp16(model)
    assert model.SerializeToString() == before
