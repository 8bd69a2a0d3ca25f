"""Models compiled with `precision="bf16"` and run on the virtual GPU, against PyTorch in FP32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import boltgen
from boltgen.errors import BoltgenError, InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.running.artifact import Artifact

BATCH, K, HIDDEN, OUT = 24, 64, 40, 16
U = DType.BF16.unit_roundoff
RNG = np.random.default_rng(5)
# Beyond FP16's range, and within BF16's: in FP16 the hidden layer would be infinite.
SCALE = 1e5


def dense(k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    weight = RNG.standard_normal((k, n)) / k**0.5
    return weight.astype(np.float32), RNG.standard_normal(n).astype(np.float32)


LAYERS = (dense(K, HIDDEN), dense(HIDDEN, OUT))


def bound(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """relu(x W + b) V + c in FP64, and how far off rounding all tensors to BF16 may make it.

    Sums in FP32 are off by far less than the one rounding to spare: 2^-24 for each addition.
    """
    value = x.astype(np.float64)
    error = np.zeros_like(value)
    for index, (weight, bias) in enumerate(LAYERS):
        w, b = weight.astype(np.float64), bias.astype(np.float64)
        size = (np.abs(value) + error) @ np.abs(w)
        # A, the weight, the bias and the result are rounded once each.
        error = error @ np.abs(w) * (1 + U) ** 2 + size * ((1 + U) ** 2 - 1) + U * np.abs(b)
        value = value @ w + b
        error = error + U * (np.abs(value) + error) + K * 2.0**-24 * size
        value = np.maximum(value, 0.0) if index == 0 else value
    return value, error


def written(folder: Path) -> Path:
    """The model as ONNX, in FP32."""
    (w, b), (v, c) = LAYERS
    arrays = {"w": w, "b": b, "v": v, "c": c}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Gemm", ["r", "v", "c"], ["y"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (BATCH, K))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (BATCH, OUT))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    path = folder / "dense.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def of_onnx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artifact]:
    path = written(tmp_path_factory.mktemp("onnx"))
    yield boltgen.compile(path, arch="sm_80", precision="bf16", check="full")


def run(artifact: Artifact, x: np.ndarray) -> np.ndarray:
    (name,) = (spec.name for spec in artifact.metadata.inputs)
    (result,) = artifact.run({name: x}, device="vgpu").values()
    return result


@pytest.mark.parametrize("scale", [1.0, SCALE])
def test_an_onnx_model_is_right_where_fp16_has_no_numbers(of_onnx: Artifact, scale: float) -> None:
    x = (scale * RNG.standard_normal((BATCH, K))).astype(np.float32)
    expected, most = bound(x)
    assert (np.abs(run(of_onnx, x) - expected) <= most).all()


def test_what_is_inspected_says_so(of_onnx: Artifact) -> None:
    problems = [region.problem for region in of_onnx.metadata.regions]
    assert len(problems) == 2
    assert all("in_dtype=bfloat16, acc_dtype=float32" in problem for problem in problems)


def test_a_pytorch_module_in_bf16_keeps_the_types_of_its_inputs_and_outputs() -> None:
    module = nn.Sequential(nn.Linear(K, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT)).eval()
    with torch.no_grad():
        for layer, (weight, bias) in zip((module[0], module[2]), LAYERS, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias))
    x = RNG.standard_normal((BATCH, K)).astype(ml_dtypes.bfloat16)
    example = torch.from_numpy(x.astype(np.float32)).bfloat16()
    artifact = boltgen.compile(module.bfloat16(), (example,), arch="sm_80", precision="bf16")
    assert len(artifact.metadata.regions) == 2
    result = run(artifact, x)
    assert result.dtype == ml_dtypes.bfloat16
    expected, most = bound(x)
    assert (np.abs(result.astype(np.float64) - expected) <= most).all()


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"arch": "sm_75"}, InvalidProblemError, "bf16.*sm_75"),
        ({"accumulate": "float16"}, InvalidProblemError, "bf16.*float16.*float32"),
        ({"precision": "fp8"}, BoltgenError, "'fp8'.*fp16, bf16"),
        ({"precision": "int8"}, BoltgenError, "'int8'.*fp16, bf16"),
    ],
)
def test_what_has_no_kernel_is_refused_by_name(
    tmp_path: Path, options: dict[str, str], error: type[BoltgenError], named: str
) -> None:
    with pytest.raises(error, match=named):
        boltgen.compile(written(tmp_path), **{"precision": "bf16", **options})
