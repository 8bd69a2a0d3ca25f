"""PyTorch's side of section models, on the CPU: it computes what the ONNX models say."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

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
