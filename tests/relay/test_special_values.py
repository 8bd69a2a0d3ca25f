"""NaN and infinities in what TVM computes of Relay: right is NumPy's value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import boltgen
import boltgen.relay  # loads what TVM's library needs
from boltgen.tvm_build.relay_model import Model

NAN, INF = np.nan, np.inf
X = np.array([[NAN, 1, -2, 3], [2, INF, -INF, NAN], [-INF] * 4, [INF] * 4, [NAN] * 4], np.float32)
Z = np.ascontiguousarray(X[::-1, ::-1])
Value = Callable[[Any, Any], Any]
OPERATORS: dict[str, Value] = {
    "Max(x, z)": np.maximum,
    "Min(x, z)": np.minimum,
    "ReduceMax<axes=[1], keepdims=0>(x)": lambda x, z: x.max(1),
    "ReduceMin<axes=[0], keepdims=0>(x)": lambda x, z: x.min(0),
    "Relu(x)": lambda x, z: np.maximum(x, 0),
    "Sign(x)": lambda x, z: np.sign(x),
    "Clip(x, low, high)": lambda x, z: np.clip(x, -1, 2),
    "Clip(x, low)": lambda x, z: np.maximum(x, -1),
    "Not(same)": lambda x, z: np.isnan(x),
    "ArgMax<axis=1, keepdims=0>(x)": lambda x, z: x.argmax(1),
    "ArgMin<axis=0>(x)": lambda x, z: x.argmin(0)[None],
    "GlobalMaxPool(picture)": lambda x, z: x.max()[None, None, None, None],
}


def _model() -> onnx.ModelProto:
    names = [f"y{place}" for place in range(len(OPERATORS))]
    body = " ".join(f"{name} = {text}" for name, text in zip(names, OPERATORS, strict=True))
    ends = ", ".join(
        f"{'int64' if text.startswith('Arg') else 'float'}[] {name}"
        for name, text in zip(names, OPERATORS, strict=True)
    )
    graph = onnx.parser.parse_graph(
        f"special (float[5, 4] x, float[5, 4] z) => ({ends}) "
        f"{{picture = Reshape(x, image) same = Equal(x, x) {body}}}"
    )
    for end in graph.output:
        end.type.Clear()
    constants = {"low": np.float32(-1), "high": np.float32(2), "image": np.array([1, 1, 5, 4])}
    graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    opset = onnx.helper.make_opsetid("", 17)
    made = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("device", ["host", "vgpu"])
def test_nan_and_infinities_are_passed_on(device: str, tmp_path: Path) -> None:
    path = tmp_path / "special.onnx"
    onnx.save(_model(), path)
    if device == "host":
        found = Model(path, {}).reference([X, Z])
    else:
        artifact = boltgen.compile(path, arch="sm_80", check="none")
        found = list(artifact.run({"x": X, "z": Z}, device="vgpu").values())
    for (text, value), have in zip(OPERATORS.items(), found, strict=True):
        np.testing.assert_allclose(have, value(X, Z), rtol=1e-3, err_msg=text)


def test_nan_is_the_greatest_number_of_a_sort(tmp_path: Path) -> None:
    # Right is PyTorch's order: NaN is beyond infinity.
    path = tmp_path / "most.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]>
    most (float[5, 4] x) => (float[5, 4] values, int64[5, 4] places) {
      four = Constant<value_ints=[4]>()
      values, places = TopK(x, four)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)
    values, places = Model(path, {}).reference([X])
    np.testing.assert_array_equal(values, np.sort(X, 1)[:, ::-1])
    np.testing.assert_array_equal(np.take_along_axis(X, places, 1), values)
