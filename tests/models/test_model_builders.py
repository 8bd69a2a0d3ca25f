"""Every registered model: published size, valid ONNX, and outputs of sensible magnitude."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from models import MODELS, build, parameter_count
from models.fp16 import rounded_to_fp16

# Small versions: name, options, and how many nodes of the operators that matter they have.
SMALL = {
    "resnet18": ({"image_size": 64}, {"Conv": 20, "BatchNormalization": 20, "Add": 8, "Gemm": 1}),
    "resnet50": ({"image_size": 32}, {"Conv": 53, "BatchNormalization": 53, "Add": 16, "Gemm": 1}),
    "vgg16": ({"image_size": 32}, {"Conv": 13, "Relu": 15, "MaxPool": 5, "Gemm": 3}),
    "repvgg_a0": ({"image_size": 64, "batch": 2}, {"Conv": 22, "Relu": 22, "Gemm": 1}),
    "repvgg_a1": ({"image_size": 32}, {"Conv": 22, "Relu": 22, "Gemm": 1}),
    "repvgg_b0": ({"image_size": 32}, {"Conv": 28, "Relu": 28, "Gemm": 1}),
    # A 1x1 convolution after each 3x3 one but the last.
    "repvggaug_a0": ({"image_size": 64}, {"Conv": 43, "Relu": 43, "Gemm": 1}),
    "repvggaug_a1": ({"image_size": 32}, {"Conv": 43, "Relu": 43, "Gemm": 1}),
    "repvggaug_b0": ({"image_size": 32}, {"Conv": 55, "Relu": 55, "Gemm": 1}),
    "bert_base": (
        {"seq_len": 16, "layers": 2, "batch": 2},
        {"MatMul": 16, "Softmax": 2, "Erf": 2, "LayerNormalization": 4},
    ),
}


def _run(model: onnx.ModelProto, **inputs: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def _random_input(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    value = model.graph.input[0]
    shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(5).standard_normal(shape, dtype=np.float32)}


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def test_every_model_has_a_small_version_here() -> None:
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_parameter_count_is_the_stated_one(name: str) -> None:
    millions = parameter_count(build(name)) / 1e6
    assert millions == pytest.approx(MODELS[name].parameters_millions, abs=0.005)


@pytest.mark.parametrize("name", SMALL)
def test_model_runs_in_fp32_and_survives_fp16(name: str) -> None:
    options, expected_nodes = SMALL[name]
    model = build(name, **options)
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    nodes = Counter(node.op_type for node in model.graph.node)
    assert {operator: nodes[operator] for operator in expected_nodes} == expected_nodes

    inputs = _random_input(model)
    exact = _run(model, **inputs)
    declared = model.graph.output[0].type.tensor_type.shape.dim
    assert exact.shape == tuple(dimension.dim_value for dimension in declared)
    assert np.isfinite(exact).all()
    assert 0.2 < _rms(exact) < 5.0

    rounded = _run(rounded_to_fp16(model), **inputs)
    assert np.isfinite(rounded).all()
    assert _rms(rounded - exact) < 0.01 * _rms(exact)


@pytest.mark.parametrize("name", ["resnet50", "bert_base"])
def test_float16_models_are_valid(name: str) -> None:
    model = build(name, **SMALL[name][0], dtype="float16")
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def test_the_image_size_changes_no_shape_of_a_convolution() -> None:
    small, large = build("resnet18", image_size=64), build("resnet18", image_size=96)
    for a, b in zip(small.graph.initializer, large.graph.initializer, strict=True):
        assert (a.name, a.dims) == (b.name, b.dims)


def test_the_seed_decides_the_weights() -> None:
    def first_weight(seed: int) -> np.ndarray:
        model = build("repvgg_a0", image_size=32, seed=seed)
        return numpy_helper.to_array(model.graph.initializer[0])

    assert np.array_equal(first_weight(0), first_weight(0))
    assert not np.array_equal(first_weight(0), first_weight(1))


def test_a_masked_position_does_not_matter() -> None:
    model = build("bert_base", seq_len=8, layers=1, mask=True)
    x = _random_input(model)["hidden_states"]
    mask = np.zeros((1, 1, 1, 8), np.float32)
    mask[..., -1] = -10000.0
    changed = x.copy()
    changed[:, -1] += 1.0
    original_result = _run(model, hidden_states=x, attention_mask=mask)
    changed_result = _run(model, hidden_states=changed, attention_mask=mask)
    assert changed_result[:, :-1] == pytest.approx(original_result[:, :-1], abs=1e-5)
    assert np.abs(changed_result[:, -1] - original_result[:, -1]).max() > 0.1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("alexnet", {}, "no model is named 'alexnet'; there are resnet18, "),
        ("resnet18", {"seq_len": 3}, "resnet18 has no option seq_len; its options are batch, "),
        ("vgg16", {"image_size": 100}, "100 is no multiple of 32"),
        ("bert_base", {"layers": 0}, "at least 1 layer, got 0"),
        ("resnet18", {"batch": 0}, r"empty shape \(0, 3, 224, 224\)"),
    ],
)
def test_errors_name_the_remedy(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, **options)
