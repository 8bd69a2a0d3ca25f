"""Section models: PyTorch's columns, and TVM's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.gpu.capture import Replay
from benchmarks.gpu.items import WholeModel
from benchmarks.gpu.models_run import TUNED, TVM, TorchModel, replays, tvm_columns


def test_pytorchs_columns_are_eager_and_compiled():
    """With a stand-in for what captures and compiles on a GPU."""
    outputs = {}

    def captured(calls) -> Replay:
        outputs[len(outputs)] = calls[0]()
        return Replay(print, len(calls))

    vendor = SimpleNamespace(
        torch=torch, captured=captured, compiled=lambda function: function, compiles=True
    )
    shapes = {
        "stage0.0.conv.weight": (16, 3, 3, 3),
        "stage0.0.conv.bias": (16,),
        "linear.weight": (10, 16),
        "linear.bias": (10,),
    }
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    x = rng.standard_normal((2, 3, 8, 8), np.float32).astype(np.float16)
    compiling_s: dict[str, float] = {}
    columns = replays(TorchModel("repvgg_a0", arrays, x, "cpu"), vendor, compiling_s)
    found = {name: capture().launches for name, capture in columns.items()}
    assert found == {"eager": 1, "compiled": 1}
    assert compiling_s.keys() == {"torch"}
    assert torch.equal(outputs[0], outputs[1])
    assert outputs[0].shape == (2, 10)
    assert outputs[0].dtype is torch.float16


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
