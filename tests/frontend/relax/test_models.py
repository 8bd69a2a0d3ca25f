"""Whole models of `models/`: every product offloaded, and numbers as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import models
from benchmarks.cases.relax_modules import operators
from benchmarks.harness.oracle_kernels import Model
from benchmarks.harness.region_oracle import assert_stored
from boltgen.frontend.relax import ImportedModel, annotate, import_model
from boltgen.ir.dtypes import DType
from boltgen.problems.layout_transform.problem import Form, ImageLayout


def _products(model: onnx.ModelProto) -> int:
    return sum(node.op_type in {"Conv", "Gemm", "MatMul"} for node in model.graph.node)


def _inputs(imported: ImportedModel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = {}
    for spec in imported.inputs:
        if "mask" in spec.name:
            inputs[spec.name] = np.ones(spec.shape, spec.dtype)
            inputs[spec.name][..., -5:] = 0
        else:
            inputs[spec.name] = rng.standard_normal(spec.shape).astype(spec.dtype)
    return inputs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", {"image_size": 64}),
        ("resnet18", {"image_size": 64, "dtype": "float16"}),
        ("repvgg_a0", {"image_size": 64}),
        ("bert_base", {"layers": 1, "seq_len": 32, "mask": True}),
    ],
)
def test_a_model_agrees_with_onnx_runtime(name: str, options: dict[str, Any]) -> None:
    source = models.build(name, **options)
    imported = import_model(source)
    model = Model(imported.module, normalise=True)
    layers = [layer.problem for each in model.regions for layer in each.workload.layers]
    assert sum(problem.has_b for problem in layers) == _products(source)
    # Two norms of each block; attention has the softmax. ONNX's models of images have none.
    assert len(layers) - _products(source) == 2 * options.get("layers", 0)
    inputs = _inputs(imported)
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, inputs)
    for actual, wanted in zip(model.run(*inputs.values()), expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        # Each stored value is off by half an FP16 ulp, 2^-11 of itself. Through some twenty layers
        # these errors add up as random ones do: sqrt(20) * 2^-11 of the largest output.
        scale = float(np.abs(wanted).max())
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=20**0.5 * 2**-11 * scale)


def test_resnet50_has_no_conversion_in_the_middle() -> None:
    source = models.build("resnet50", batch=32)
    annotated = annotate(import_model(source).module)
    assert len(annotated.regions) == _products(source)
    assert operators(annotated) == [
        "max_pool2d",
        *("astype", "sum", "divide", "reshape", "astype"),  # the pool that sums in FP32
    ]
    first, *rest = annotated.regions
    nchw_f32 = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
    assert_stored(first.a_stored, nchw_f32, 3)
    assert all(region.a_stored is region.d_stored is None for region in rest)


def test_a_classifier_after_flattening_is_one_dense_layer() -> None:
    annotated = annotate(import_model(models.build("vgg16", image_size=32)).module)
    assert operators(annotated).count("permute_dims") == 0
    assert operators(annotated).count("max_pool2d") == 5
