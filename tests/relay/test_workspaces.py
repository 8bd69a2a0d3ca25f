"""Workspaces in Relay: planned by TVM, so that a whole inference is captured in a CUDA graph."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boltgen.relay
from boltgen.device.choose import activate

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

TARGET = tvm.target.Target("cuda -arch=sm_80", host="llvm")
ROWS, DEPTH, COLUMNS = 16, 4096, 64


def product() -> tuple[tvm.IRModule, np.ndarray[Any, Any]]:
    """Few tiles and a deep K: the analytical model splits it."""
    weight = np.random.default_rng(1).standard_normal((COLUMNS, DEPTH)) / DEPTH**0.5
    x = relay.var("x", shape=(ROWS, DEPTH), dtype="float16")
    made = relay.nn.relu(relay.nn.dense(x, relay.const(weight.astype(np.float16))))
    made = relay.reverse(made, 1)  # TVM's part
    return tvm.IRModule.from_expr(relay.Function([x], made)), weight.astype(np.float16)


def wanted(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.maximum(x.astype(np.float32) @ weight.astype(np.float32).T, 0)[:, ::-1]


# Sums of 4096 products of about 1/64 each in FP32, then rounded to FP16 below 8.
TOLERANCE = 8 * 2.0**-11


def test_a_region_with_a_workspace_returns_it_too() -> None:
    module = boltgen.relay.partition(product()[0])
    (region,) = (f for g, f in module.functions.items() if g.name_hint.startswith("boltgen_"))
    result, workspace = region.checked_type.ret_type.fields
    assert list(result.shape) == [ROWS, COLUMNS]
    assert workspace.dtype == "uint8"
    # At least two slices of FP32 sums share one tile each.
    assert int(workspace.shape[0]) >= ROWS * COLUMNS * 4
    assert list(module["main"].checked_type.ret_type.shape) == [ROWS, COLUMNS]


def test_an_inference_is_captured_and_replayed(tmp_path: Path) -> None:
    module, weight = product()
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(boltgen.relay.partition(module), target=TARGET)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    gpu = tvm.cuda(0)
    executor = graph_executor.GraphModule(tvm.runtime.load_module(str(library))["default"](gpu))
    runtime = ctypes.CDLL("libcudart.so.12")
    stream = gpu.create_raw_stream()
    graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
    x = np.random.default_rng(0).standard_normal((ROWS, DEPTH)).astype(np.float16)
    executor.set_input("x", x)
    vgpu = activate("vgpu").vgpu
    gpu.set_raw_stream(stream)
    try:
        executor.run()  # TVM loads its own modules in the first run
        said = vgpu.last_error()  # by another test in this process
        # 0: whatever a capture forbids in any thread is an error, allocations among it.
        assert runtime.cudaStreamBeginCapture(stream, 0) == 0
        executor.run()
        assert runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
    finally:
        gpu.set_raw_stream(None)
    count = ctypes.c_size_t()
    assert runtime.cudaGraphGetNodes(graph, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert runtime.cudaGraphGetNodes(graph, nodes, ctypes.byref(count)) == 0
    kinds = []
    for node in nodes:
        kind = ctypes.c_int()
        assert runtime.cudaGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kinds.append(kind.value)
    # Source: driver_types.h, cudaGraphNodeType: kernels are 0, fills 2; allocations are 10.
    assert sorted(kinds) == [0, 0, 2], "boltgen's and TVM's kernels, the fill of the semaphores"
    assert runtime.cudaGraphInstantiate(ctypes.byref(instance), graph, ctypes.c_ulonglong(0)) == 0
    for seed in (2, 3):
        x = np.random.default_rng(seed).standard_normal((ROWS, DEPTH)).astype(np.float16)
        executor.set_input("x", x)
        assert runtime.cudaGraphLaunch(instance, stream) == 0
        assert runtime.cudaStreamSynchronize(stream) == 0
        found = executor.get_output(0).numpy()
        np.testing.assert_allclose(found, wanted(x, weight), atol=TOLERANCE, rtol=0)
    assert vgpu.last_error() == said


@pytest.mark.parametrize("offset", [0, 16, 2])
def test_a_slice_at_a_byte_offset(offset: int, tmp_path: Path) -> None:
    """What TVM's virtual machine passes may begin anywhere: read from there, or refused."""
    module, weight = product()
    with tvm.transform.PassContext(opt_level=3):
        built = relay.vm.compile(boltgen.relay.partition(module), target=TARGET)
    code, _ = built.save()
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    executable = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(library)))
    gpu = tvm.cuda(0)
    machine = tvm.runtime.vm.VirtualMachine(executable, gpu)
    whole = np.random.default_rng(2).standard_normal(ROWS * DEPTH + 64).astype(np.float16)
    first = offset // 2
    x = whole[first : first + ROWS * DEPTH].reshape(ROWS, DEPTH)
    memory = tvm.nd.array(whole, gpu)
    sliced = tvm.nd.empty((ROWS, DEPTH), "float16", gpu)
    own = sliced.handle.contents.data
    sliced.handle.contents.data = memory.handle.contents.data
    sliced.handle.contents.byte_offset = offset
    try:
        if offset == 2:
            with pytest.raises(tvm.TVMError, match="needs 16-byte alignment"):
                machine.run(sliced)
            return
        found = machine.run(sliced).numpy()
    finally:
        sliced.handle.contents.data = own
    np.testing.assert_allclose(found, wanted(x, weight), atol=TOLERANCE, rtol=0)
