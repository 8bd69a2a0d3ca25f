"""ONNX files that nobody here wrote: those that the package onnx brings for its own tests.

They are the architectures of 2012 to 2017 as Caffe2 exported them, in old operator sets. Their
weights are constants and make no sense, so that the one that is run is given others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

import boltgen
from boltgen.frontend.relax import annotate, import_model

FILES = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# What TVM keeps of each.
REST = {
    "squeezenet": {"concat", "max_pool2d", "reshape", "astype", "mean"},
    "resnet50": {"max_pool2d", "avg_pool2d", "reshape", "astype"},
    "inception_v2": {"concat", "max_pool2d", "avg_pool2d", "reshape", "astype"},
}


@pytest.mark.parametrize("name", REST)
def test_every_product_is_offloaded_with_what_follows_it(name: str) -> None:
    path = FILES / f"light_{name}.onnx"
    products = sum(node.op_type in {"Conv", "Gemm"} for node in onnx.load(path).graph.node)
    annotated = annotate(import_model(path).module)
    assert len(annotated.regions) == products + 1
    assert annotated.regions[-1].label.startswith("softmax")
    rest = {placed.operator for placed in annotated.placements if placed.region is None}
    assert rest == REST[name]


def _with_weights(path: Path) -> ModelProto:
    """The model with random weights that keep the mean square of what they multiply."""
    model, rng = onnx.load(path), np.random.default_rng(0)
    shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(map(int, shapes[node.input[0]]))
        spread = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
        weight = (rng.standard_normal(shape) * spread).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def test_squeezenet_agrees_with_onnx_runtime() -> None:
    model = _with_weights(FILES / "light_squeezenet.onnx")
    artifact = boltgen.compile(model, arch="sm_80")
    (name,) = (each.name for each in artifact.metadata.inputs)
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224), dtype=np.float32)
    (actual,) = artifact.run({name: image}, device="vgpu").values()
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {name: image})
    # Each of 26 layers rounds what it stores by 2^-11 at most; the errors add up as random ones do,
    # and softmax makes relative errors of absolute ones of logits, whose spread is about 2.
    error = np.sqrt(np.mean((actual - wanted) ** 2) / np.mean(wanted**2))
    assert error <= 2 * 26**0.5 * 2**-11
