"""Section models: PyTorch's columns, and TVM's."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.gpu.capture import Replay
from benchmarks.gpu.items import WholeModel
from benchmarks.gpu.models_run import (
    TUNED,
    TVM,
    TorchModel,
    reference_output,
    replays,
    tvm_columns,
)

_SHAPES = {
    "stage0.0.conv.weight": (16, 3, 3, 3),
    "stage0.0.conv.bias": (16,),
    "linear.weight": (10, 16),
    "linear.bias": (10,),
}


def small_model(device: str) -> TorchModel:
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in _SHAPES.items()}
    x = rng.standard_normal((2, 3, 8, 8), np.float32).astype(np.float16)
    return TorchModel("repvgg_a0", arrays, x, device)


def test_pytorchs_columns_are_eager_and_compiled_the_cheap_mode_first():
    """With a stand-in for what captures and compiles on a GPU."""
    outputs, modes = {}, []

    def compiled(function, mode: str):
        modes.append(mode)
        return function

    def captured(calls) -> Replay:
        outputs[len(outputs)] = calls[0]()
        return Replay(print, len(calls))

    vendor = SimpleNamespace(torch=torch, captured=captured, compiled=compiled, compiles=True)
    compiling_s: dict[str, float] = {}
    columns = replays(small_model("cpu"), vendor, compiling_s)
    assert list(columns) == ["eager", "compiled_default_mode", "compiled"]
    assert [capture().launches for capture in columns.values()] == [1, 1, 1]
    assert modes == ["default", "max-autotune-no-cudagraphs"]
    assert compiling_s.keys() == {"torch_compiled_default_mode", "torch_compiled"}
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    vendor.compiles = False
    assert list(replays(small_model("cpu"), vendor, {})) == ["eager"]
    assert outputs[0].shape == (2, 10)
    assert outputs[0].dtype is torch.float16


@pytest.mark.parametrize("device", ["cpu", "no_such_device", None])
def test_a_reference_that_the_gpu_cannot_compute_is_the_cpus(device: str | None):
    vendor = SimpleNamespace(device=device, untuned=nullcontext) if device else None
    rig = SimpleNamespace(vendor=vendor, forgotten=lambda error: type(error).__name__)
    found, errors = reference_output(rig, small_model)
    assert np.array_equal(found, small_model("cpu").reference())
    fails = device == "no_such_device"
    assert errors == ({"reference": "computed on the CPU: RuntimeError"} if fails else {})


def test_columns_of_tvms_are_those_that_can_be_had():
    item = WholeModel(
        section="models", name="m", model="m", input_shape=(1,), is_tuned=True, recipe="r"
    )
    real, virtual = {"virtual": False}, {"virtual": True}
    alone = {TVM: "model_m_tvm_alone"}
    both = {**alone, TUNED: "model_m_tvm_metaschedule"}
    assert tvm_columns(item, real, virtual=False) == (both, {})
    assert tvm_columns(item, virtual, virtual=True) == (both, {})
    symbols, missing = tvm_columns(item, virtual, virtual=False)
    assert (symbols, missing.keys()) == (alone, {TUNED})
    symbols, missing = tvm_columns(replace(item, is_tuned=False), None, virtual=False)
    assert (symbols, missing.keys()) == (alone, {TUNED})
