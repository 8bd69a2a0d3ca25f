"""ONNX models by the old importer: prepared as for Relax, and run by TVM on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import boltgen.relay  # noqa: F401  loads what TVM's library needs
from boltgen.errors import ModelImportError
from boltgen.frontend.relay.importer import import_model
from boltgen.tvm_build.relay_model import Model

import tvm  # isort: skip
from tvm import relay  # isort: skip

node = helper.make_node


def model(
    nodes: list[Any], shape: tuple[int | str, ...], opset: int = 17, **constants: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(made: onnx.ModelProto, x: np.ndarray[Any, Any], wanted: Any = None) -> None:
    """Check the imported model against ONNX's reference, in FP32."""
    module = import_model(made).module
    run = relay.create_executor("graph", module, tvm.cpu(), "llvm").evaluate()
    if wanted is None:
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    # Sums of at most 64 terms of size 1 to 4, in another order: 64 * 4 * 2^-24.
    np.testing.assert_allclose(run(x).numpy(), wanted, rtol=2**-16, atol=2**-16)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind: str) -> None:
    steps = 2
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    weights = {"w": noise(1, gates * 6, 5, seed=1), "r": noise(1, gates * 6, 6, seed=2)}
    layer = node(kind, ["x", "w", "r"], ["y"], hidden_size=6)
    made = model([layer], (steps, 2, 5), **weights)
    check(made, noise(steps, 2, 5))


@pytest.mark.parametrize("bounds", [("low", ""), ("", "high"), ("low", "high")])
def test_clips_with_one_bound(bounds: tuple[str, str]) -> None:
    made = model(
        [node("Clip", ["x", *bounds], ["y"])],
        (2, 9),
        low=np.float32(-0.5),
        high=np.float32(0.25),
    )
    check(made, noise(2, 9))


def test_shape_arithmetic_and_a_norm() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"], axis=0),
        node("Unsqueeze", ["rows", "axis"], ["row"]),
        node("Concat", ["row", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["flat"]),
        node("LpNormalization", ["flat"], ["y"], axis=-1),
    ]
    made = model(nodes, (2, 3, 4), zero=np.int64(0), axis=np.array([0]), rest=np.array([-1]))
    flat = noise(2, 3, 4).reshape(2, 12)
    check(made, noise(2, 3, 4), flat / np.linalg.norm(flat, axis=-1, keepdims=True))
    assert "LpNormalization" in "".join(import_model(made).notes)


@pytest.mark.parametrize("opset", [13, 18])
def test_reductions_with_axes_by_either_way(opset: int) -> None:
    axes: dict[str, Any] = {"axes": np.array([1])} if opset == 18 else {}
    given = {} if axes else {"axes": [1]}
    made = model(
        [node("ReduceMean", ["x", *axes], ["y"], keepdims=1, **given)], (2, 3, 4), opset, **axes
    )
    check(made, noise(2, 3, 4))


def test_an_open_dimension_stays_open() -> None:
    made = model([node("Relu", ["x"], ["y"])], ("batch", 4))
    imported = import_model(made)
    assert isinstance(imported.inputs[0].shape[0], str)
    assert import_model(made, shapes={"x": (3, 4)}).inputs[0].shape == (3, 4)


def test_the_graph_executor_needs_every_extent() -> None:
    made = model([node("Relu", ["x"], ["y"])], ("batch", 4))
    with pytest.raises(ModelImportError, match=r"'x' has the dynamic dimension '\?'"):
        Model(made, {})
    assert Model(made, {"x": (3, 4)}).inputs[0].shape == (3, 4)


def test_an_operator_that_nothing_converts() -> None:
    made = model([node("Det", ["x"], ["y"], name="volume")], (2, 3, 3))
    with pytest.raises(ModelImportError, match=r"Det \(node 'volume'\)"):
        import_model(made)
