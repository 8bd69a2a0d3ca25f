"""What leaves FP16's range on calibration inputs stays FP32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import boltgen
from boltgen.errors import InputError


def _model(folder: Path) -> Path:
    """x W V, where x W is beyond FP16 for x of 1000, and V brings it back."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Mul", ["z", "small"], ["s"]),
        helper.make_node("MatMul", ["s", "v"], ["out"]),
    ]
    weights = {
        "w": np.full((64, 64), 8.0, np.float32),
        "small": np.array(2.0**-12, np.float32),
        "v": np.eye(64, dtype=np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [16, 64])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _model(tmp_path_factory.mktemp("calibrated"))


def test_a_product_that_overflows_has_fp32_results(model: Path) -> None:
    x = np.full((16, 64), 1000, np.float32)
    artifact = boltgen.compile(model, calibrate={"x": x})
    kept = [found for found in artifact.metadata.ranges if found.is_kept_wide]
    assert [(found.operator, found.high) for found in kept] == [
        ("matmul", "512000"),
        ("relu", "512000"),
    ]
    assert len(artifact.metadata.ranges) == 5  # x, both products, and what is between
    (out,) = artifact.run({"x": x}).values()
    np.testing.assert_array_equal(out, np.full((16, 64), 125.0, np.float32))


def test_an_array_that_the_model_does_not_take_is_refused(model: Path) -> None:
    with pytest.raises(InputError, match=r"'x' has shape \(16, 63\), expected \(16, 64\)"):
        boltgen.compile(model, calibrate=[{"x": np.zeros((16, 63), np.float32)}])
