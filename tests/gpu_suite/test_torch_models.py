"""PyTorch's side of section models, on the CPU: it computes what the ONNX models say."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

from benchmarks.gpu.models_run import TorchModel, parameters
from benchmarks.gpu.torch_models import torch_model
from models import build
from models.parameters import PeriodicParameters, periodic

SMALL = {
    "resnet50": {"batch": 2, "image_size": 64},
    "vgg16": {"batch": 1, "image_size": 32},
    "repvgg_a0": {"batch": 2, "image_size": 64},
    "repvggaug_a0": {"batch": 2, "image_size": 64},
    "bert_base": {"batch": 2, "seq_len": 16, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_model_of_pytorchs_is_the_onnx_model(name: str):
    source = PeriodicParameters()
    model = build(name, parameters=source, **SMALL[name])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (value,) = session.get_inputs()
    x = np.random.default_rng(5).standard_normal(value.shape, dtype=np.float32)
    (expected,) = session.run(None, {value.name: x})
    parameters = {tensor: periodic(tensor, *recipe) for tensor, recipe in source.recipe.items()}
    with torch.no_grad():
        found = torch_model(name, parameters)(torch.from_numpy(x)).numpy()
    # FP32 both: sums in another order, and folded batch norms, through some fifty layers.
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_pytorchs_halves_and_reference_run_on_the_cpu():
    recipe = {"parameters": {"linear.weight": [[10, 48], 0.0, 0.14], "linear.bias": [[10], 0, 0]}}
    shapes = {"stage0.0.conv.weight": [48, 3, 3, 3], "stage0.0.conv.bias": [48]}
    recipe["parameters"] |= {name: [shape, 0.0, 0.2] for name, shape in shapes.items()}
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float16)
    model = TorchModel("repvgg_a0", parameters(recipe), x, "cpu")
    reference = model.reference()
    with torch.no_grad():
        half = model.half()(model.x)
    assert half.dtype is torch.float16
    # A convolution and a dense layer, and a mean between them, rounded to FP16 each.
    assert np.linalg.norm(half.numpy() - reference) <= 3 * 2.0**-10 * np.linalg.norm(reference)
    assert model.x.is_contiguous(memory_format=torch.channels_last)
