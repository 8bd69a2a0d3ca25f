"""NaN and infinities in what TVM computes: expected values are NumPy's, on the host and the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import boltgen
from boltgen.pipeline import PipelineOptions
from boltgen.runtime.model import import_model

Array: TypeAlias = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf
SIDE = 8
X = np.array(
    [
        [NAN, 1, -2, 3, 0.5, -1, 2, 0],
        [2, 1, 0, NAN, -3, INF, 1, -INF],
        [4, -INF, 9, 1, INF, 2, -1, NAN],
        [-INF] * SIDE,
        [1, 2, 3, 4, 5, 6, 7, 8],
        [INF] * SIDE,
        [NAN] * SIDE,
        [INF, -INF, NAN, NAN, 1, 2, 3, 4],
    ],
    np.float32,
)
Z = np.ascontiguousarray(np.roll(X, 3, 0)[:, ::-1])
CONSTANTS = {
    "quarter": np.float32(0.25),
    "low": np.float32(-1),
    "high": np.float32(2),
    "zero": np.float32(0),
    "image": np.array([1, 1, SIDE, SIDE]),
    "flat": np.array([4, 16]),
}


@dataclass(frozen=True)
class Case:
    """An expression of ONNX, and NumPy's value of it."""

    text: str
    value: Callable[[Array, Array], Array]


def _pooled(x: Array, size: int, step: int, pad: int) -> Array:
    wide = np.pad(x, pad, constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size))
    return windows[::step, ::step].max((2, 3))[None, None]


CASES = {
    "max": Case("Max(x, z)", np.maximum),
    "min": Case("Min(x, z)", np.minimum),
    "max of a number": Case("Max(quarter, x)", lambda x, z: np.maximum(x, 0.25)),
    "min of three": Case("Min(x, z, quarter)", lambda x, z: np.minimum(np.minimum(x, z), 0.25)),
    "rows": Case("ReduceMax<axes=[1], keepdims=0>(x)", lambda x, z: x.max(1)),
    "least of columns": Case("ReduceMin<axes=[0], keepdims=1>(x)", lambda x, z: x.min(0)[None]),
    "long rows": Case("ReduceMax<axes=[1]>(wide)", lambda x, z: x.reshape(4, 16).max(1)[:, None]),
    "relu": Case("Relu(x)", lambda x, z: np.maximum(x, 0)),
    "sign": Case("Sign(x)", lambda x, z: np.sign(x)),
    "clip": Case("Clip(x, low, high)", lambda x, z: np.clip(x, -1, 2)),
    "clip from below": Case("Clip(x, low)", lambda x, z: np.maximum(x, -1)),
    "hard sigmoid": Case("HardSigmoid(x)", lambda x, z: np.clip(0.2 * x + 0.5, 0, 1)),
    "elu": Case("Elu(x)", lambda x, z: np.where(x > 0, x, np.expm1(x))),
    "threshold": Case("ThresholdedRelu(x)", lambda x, z: np.where(x > 1, x, 0)),
    "argmax": Case("ArgMax<axis=1>(x)", lambda x, z: x.argmax(1)[:, None]),
    "argmin": Case("ArgMin<axis=1>(x)", lambda x, z: x.argmin(1)[:, None]),
    "times zero": Case("Mul(x, zero)", lambda x, z: x * 0),
    "zero over": Case("Div(zero, x)", lambda x, z: np.divide(0, x)),
    "over zero": Case("Div(x, zero)", lambda x, z: np.divide(x, 0)),
    "unlike itself": Case("Not(same)", lambda x, z: np.isnan(x)),
    "pool": Case(
        "MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(picture)",
        lambda x, z: _pooled(x, 3, 1, 1),
    ),
    "pool apart": Case(
        "MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(picture)", lambda x, z: _pooled(x, 2, 2, 0)
    ),
    # The maximum in a softmax may be any number: exp(x - m) is NaN for NaN, and so are the sum
    # of its row and every quotient.
    "softmax": Case(
        "Softmax(x)",
        lambda x, z: np.exp(x - x.max(1)[:, None]) / np.exp(x - x.max(1)[:, None]).sum(1)[:, None],
    ),
}


def _model() -> onnx.ModelProto:
    names = [f"y{place}" for place in range(len(CASES))]
    before = (
        "picture = Reshape(x, image) wide = Reshape(x, flat) same = Equal(x, x)"  # once for all
    )
    body = " ".join(
        f"{name} = {case.text}" for name, case in zip(names, CASES.values(), strict=True)
    )
    ends = ", ".join(f"float[] {name}" for name in names)
    given = f"float[{SIDE}, {SIDE}]"
    graph = onnx.parser.parse_graph(
        f"special ({given} x, {given} z) => ({ends}) {{{before} {body}}}"
    )
    for end in graph.output:
        end.type.Clear()
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()
    )
    opset = onnx.helper.make_opsetid("", 17)
    made = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture(scope="module")
def found() -> Mapping[str, Mapping[str, Array]]:
    """The results of all cases by device: one model has them."""
    model = _model()
    host = import_model(model, PipelineOptions()).reference([X, Z])
    artifact = boltgen.compile(model, arch="sm_80", check="none")
    vgpu = artifact.run({"x": X, "z": Z}, device="vgpu").values()
    return {
        "host": dict(zip(CASES, host, strict=True)),
        "vgpu": dict(zip(CASES, vgpu, strict=True)),
    }


@pytest.mark.parametrize("device", ["host", "vgpu"])
@pytest.mark.parametrize("name", CASES)
def test_nan_and_infinities_are_those_of_numpy(
    name: str, device: str, found: Mapping[str, Mapping[str, Array]]
) -> None:
    with np.errstate(all="ignore"):
        wanted = CASES[name].value(X, Z)
    actual = found[device][name]
    # Kernels compute in FP16 where a function follows.
    np.testing.assert_allclose(actual, wanted, rtol=2e-3, atol=1e-3, equal_nan=True)


class Ordered(nn.Module):
    """Sorts, whose order PyTorch defines: NaN is the greatest number."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.sort(x, -1).values,
            torch.sort(x, -1, descending=True).values,
            torch.topk(x, 3).values,
            torch.topk(x, 3, largest=False).values,
            *torch.max(x, -1),
            torch.full((2,), -torch.inf) + x[4, :2],
        )


@pytest.mark.parametrize("device", ["host", "vgpu"])
def test_nan_is_the_greatest_number(device: str) -> None:
    module, given = Ordered().eval(), torch.from_numpy(X)
    if device == "host":
        exported = torch.export.export(module, (given,))
        actual = import_model(exported, PipelineOptions()).reference([X])
    else:
        artifact = boltgen.compile(module, (given,), arch="sm_80", check="none")
        actual = list(artifact.run({"x": X}, device="vgpu").values())
    for have, want in zip(actual, module(given), strict=True):
        np.testing.assert_array_equal(have, want.numpy())
