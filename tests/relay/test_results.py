"""Regions that write more than one tensor, in device memory and in the host's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boltgen.relay
from boltgen.device.choose import activate
from boltgen.device.vgpu import Vgpu

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

SHAPE = ROWS, WIDTH = 24, 64
AOT = relay.backend.Executor("aot", {"interface-api": "packed"})


@pytest.fixture(scope="module")
def model() -> tuple[tvm.IRModule, dict[str, np.ndarray], np.ndarray]:
    """The sum of a residual with a product of its own ReLU; what it takes, and what is right."""
    rng = np.random.default_rng(0)
    given = {name: rng.uniform(-1, 1, SHAPE).astype(np.float16) for name in ("a", "r")}
    weight = (rng.uniform(-1, 1, (WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float16)
    a, r = (relay.var(name, shape=SHAPE, dtype="float16") for name in given)
    total = relay.nn.dense(a, relay.const(weight)) + r
    made = relay.nn.dense(relay.nn.relu(total), relay.const(weight)) + total
    module = boltgen.relay.partition(tvm.IRModule.from_expr(relay.Function([a, r], made)))
    wide = weight.astype(np.float64).T
    sums = given["a"].astype(np.float64) @ wide + given["r"]
    return module, given, np.maximum(sums, 0.0) @ wide + sums


@pytest.fixture
def vgpu() -> Vgpu:
    device = activate("vgpu").vgpu
    assert device is not None
    device.clear_launches()
    return device


def assert_right(result: np.ndarray, wanted: np.ndarray, vgpu: Vgpu) -> None:
    """Three tensors are rounded to FP16 on the way; nothing is left to TVM."""
    assert np.abs(result - wanted).max() <= 4 * 2.0**-11 * np.abs(wanted).max()
    launched = [launch.kernel for launch in vgpu.launches()]
    assert len(launched) == 2
    assert all(kernel.startswith("boltgen_") for kernel in launched)


def test_a_region_returns_a_tuple(model: Any) -> None:
    module, *_ = model
    regions = [f for g, f in module.functions.items() if g.name_hint.startswith("boltgen_")]
    results = [function.checked_type.ret_type for function in regions]
    (several,) = (each for each in results if isinstance(each, tvm.ir.TupleType))
    assert [tuple(map(int, field.shape)) for field in several.fields[:2]] == [SHAPE, SHAPE]


def test_both_are_on_the_device(model: Any, vgpu: Vgpu, tmp_path: Path) -> None:
    module, given, wanted = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=tvm.target.Target("cuda -arch=sm_80", host="llvm"))
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    executor = graph_executor.GraphModule(
        tvm.runtime.load_module(str(library))["default"](tvm.cuda(0))
    )
    executor.run(**given)
    assert_right(executor.get_output(0).numpy(), wanted, vgpu)


def test_both_are_copied_to_host_memory(model: Any, vgpu: Vgpu, tmp_path: Path) -> None:
    module, given, wanted = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target="llvm", executor=AOT)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    executor = tvm.runtime.executor.AotModule(loaded["default"](tvm.cpu(0)))
    for name, array in given.items():
        executor.set_input(name, array)
    executor.run()
    assert_right(executor.get_output(0).numpy(), wanted, vgpu)
