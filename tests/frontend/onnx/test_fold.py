"""Shape arithmetic of exporters is computed before import; nothing else is, and nothing grows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cases.onnx_models import assert_same, model, node, noise, operators, prepared
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import prepare
from boltgen.frontend.relax import import_model
from boltgen.frontend.relax.onnx_reader import converter

FLATTEN = (
    node("Shape", ["x"], ["shape"]),
    node("Gather", ["shape", "zero"], ["rows"], axis=0),
    node("Unsqueeze", ["rows", "axis"], ["row"]),
    node("Concat", ["row", "rest"], ["wanted"], axis=0),
    node("Reshape", ["x", "wanted"], ["y"]),
)
NUMBERS = {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1])}


def test_a_reshape_of_shape_arithmetic() -> None:
    made = model(FLATTEN, {"x": (2, 3, 4)}, NUMBERS)
    after = prepared(made)
    assert operators(after.model) == ["Reshape"]
    assert_same(made, after.model, {"x": noise(2, 3, 4)})
    assert "4 operators" in after.notes[0]
    assert "Gather" in after.notes[0]


def test_a_reshape_to_an_open_batch() -> None:
    made = model(FLATTEN, {"x": ("batch", 3, 4)}, NUMBERS)
    after = prepared(made).model
    assert operators(after) == ["Reshape"]
    assert_same(made, after, {"x": noise(5, 3, 4)})
    assert import_model(made).outputs[0].shape == ("batch", 12)


def test_a_reshape_to_heads_with_two_open_extents() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "two"], ["lead"]),
        node("Concat", ["lead", "heads"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    made = model(
        nodes,
        {"x": ("batch", "steps", 8)},
        {"zero": np.array([0]), "two": np.array([2]), "heads": np.array([2, 4])},
    )
    after = prepared(made).model
    assert_same(made, after, {"x": noise(2, 3, 8)})
    assert import_model(made).outputs[0].shape == ("batch", "steps", 2, 4)


def test_what_would_grow_the_model_stays() -> None:
    nodes = [
        node("ConstantOfShape", ["extents"], ["zeros"]),
        node("Add", ["x", "zeros"], ["y"]),
    ]
    made = model(nodes, {"x": (1, 1)}, {"extents": np.array([4000, 4000])})
    after = prepared(made).model
    assert operators(after) == ["ConstantOfShape", "Add"]
    assert after.ByteSize() < 1000


def test_a_constant_of_2_to_the_40_is_refused() -> None:
    nodes = [
        node("ConstantOfShape", ["extents"], ["zeros"], name="huge"),
        node("Add", ["x", "zeros"], ["y"]),
    ]
    made = model(nodes, {"x": (1, 1)}, {"extents": np.array([2**20, 2**20])})
    with pytest.raises(ModelImportError, match=r"'huge' .*\(1048576, 1048576\)"):
        prepared(made)


def test_positions_are_computed_in_fp32() -> None:
    nodes = [
        node("Range", ["start", "limit", "step"], ["places"]),
        node("Mul", ["places", "frequency"], ["angles"]),
        node("Sin", ["angles"], ["sines"]),
        node("Mul", ["x", "sines"], ["y"]),
    ]
    numbers = {"start": 0.0, "limit": 1024.0, "step": 1.0, "frequency": 0.9}
    made = model(
        nodes, {"x": (2, 1024)}, {name: np.float32(value) for name, value in numbers.items()}
    )
    after = prepared(made).model
    assert operators(after) == ["Mul"]
    (sines,) = (numpy_helper.to_array(each) for each in after.graph.initializer)
    # An angle of 921 is rounded by 2^-15 at most, and so is its sine.
    np.testing.assert_allclose(sines, np.sin(np.arange(1024) * 0.9), atol=2**-14)


@pytest.mark.parametrize("taken", [True, False])
def test_an_if_with_a_constant_condition(taken: bool) -> None:
    def branch(operator: str) -> object:
        value = helper.make_empty_tensor_value_info("same")
        made = [node(operator, ["x"], ["inner"]), node("Add", ["inner", "k"], ["same"])]
        kept = [numpy_helper.from_array(np.float32(1), "k")]
        return helper.make_graph(made, operator, [], [value], kept)

    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"], axis=0),
        node("Equal", ["rows", "wanted"], ["condition"]),
        node("If", ["condition"], ["a"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        node("If", ["condition"], ["b"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        node("Mul", ["a", "b"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "wanted": np.int64(2 if taken else 3)}
    made = model(nodes, {"x": (2, 4)}, constants)
    after = prepared(made)
    operator = "Relu" if taken else "Neg"
    assert operators(after.model) == [operator, "Add", operator, "Add", "Mul"]
    assert_same(made, after.model, {"x": noise(2, 4)})


def test_a_branch_that_stays_is_rewritten_inside() -> None:
    def branch(axis: int) -> object:
        value = helper.make_empty_tensor_value_info(f"out{axis}")
        made = [node("LpNormalization", ["x"], [f"out{axis}"], axis=axis)]
        return helper.make_graph(made, "branch", [], [value])

    made = model(
        [
            node("ReduceMax", ["x"], ["most"], keepdims=0),
            node("Greater", ["most", "zero"], ["condition"]),
            node("If", ["condition"], ["y"], then_branch=branch(0), else_branch=branch(1)),
        ],
        {"x": (2, 4)},
        {"zero": np.float32(0)},
    )
    after = prepared(made).model
    for each in after.graph.node[-1].attribute:
        assert {inner.op_type for inner in each.g.node} >= {"Div", "ReduceL2"}
    assert_same(made, after, {"x": noise(2, 4)})


def test_an_output_that_is_a_constant() -> None:
    made = model(
        [node("Shape", ["x"], ["shape"]), node("Relu", ["x"], ["y"])],
        {"x": (2, 4)},
        outputs=["shape", "y"],
    )
    after = prepared(made).model
    assert_same(made, after, {"x": noise(2, 4)})
    assert [each.shape for each in import_model(made).outputs] == [(2,), (2, 4)]


def test_a_dequantised_weight_is_a_constant_in_float() -> None:
    weight = np.arange(-60, 60, dtype=np.int8).reshape(12, 10)
    constants = {
        "w": weight,
        "scale": np.linspace(0.01, 0.1, 10, dtype=np.float32),
        "point": np.full(10, 3, np.int8),
    }
    for opset in (13, 17, 19, 21, 23):
        nodes = [
            node("DequantizeLinear", ["w", "scale", "point"], ["wide"], axis=1),
            node("MatMul", ["x", "wide"], ["y"]),
        ]
        made = model(nodes, {"x": (2, 12)}, constants, opset=opset)
        plain = replace(converter(), packs_weights=False)
        after = prepare(made, {}, plain, allow_nonfinite=False).model
        assert operators(after) == ["MatMul"]
        assert after.graph.initializer[0].data_type == TensorProto.FLOAT
        assert_same(made, after, {"x": noise(2, 12)})
        # Relax's passes pack it, or fold it later.
        whole = prepared(made).model
        assert operators(whole)[0] == "DequantizeLinear"
        assert TensorProto.INT8 in {each.data_type for each in whole.graph.initializer}
        assert_same(made, whole, {"x": noise(2, 12)})


def test_an_extent_beside_others_that_are_not_known_is_a_constant() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["places"], axis=0),
        node("Range", ["zero", "places", "one"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["x", "f"], ["y"]),
    ]
    made = model(nodes, {"x": ("batch", 4)}, {"zero": np.int64(0), "one": np.int64(1)})
    after = prepared(made).model
    assert operators(after) == ["Add"]
    assert_same(made, after, {"x": noise(3, 4)})
