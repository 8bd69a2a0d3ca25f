"""A partitioned module through plain `relay.build` and every executor, on the virtual GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boltgen.relay
from boltgen.device.choose import activate

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip
from tests.relay.networks import SHAPE, imported  # isort: skip

TARGET = tvm.target.Target("cuda -arch=sm_80", host="llvm")
# Values below 1 after a sigmoid; five FP16 layers, each of which rounds by 2**-11 of values up to
# about 8, whose errors the sigmoid's slope of 1/4 passes on.
TOLERANCE = 5 * 8 * 2.0**-11 / 4


@pytest.fixture(scope="module")
def model() -> tuple[tvm.IRModule, dict[str, Any], np.ndarray, np.ndarray]:
    module, params, x, expected = imported()
    return boltgen.relay.partition(module, params), params, x.numpy(), expected.numpy()


def boltgen_launches() -> list[str]:
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    found = [launch.kernel for launch in vgpu.launches() if launch.kernel.startswith("boltgen_")]
    vgpu.clear_launches()
    return found


def reloaded(built: Any, folder: Path) -> graph_executor.GraphModule:
    library = boltgen.relay.export_library(built, folder / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    return graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))


def test_graph_executor_and_reload(model: Any, tmp_path: Path) -> None:
    module, params, x, expected = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=TARGET, params=params)
    executor = reloaded(built, tmp_path)
    boltgen_launches()
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, atol=TOLERANCE, rtol=0)
    assert len(boltgen_launches()) == 4  # three convolutions and the head


AOT = relay.backend.Executor("aot", {"interface-api": "packed"})


def test_aot_executor(model: Any, tmp_path: Path) -> None:
    """TVM's own ahead-of-time executor: tensors in host memory, boltgen's kernels on the GPU."""
    module, params, x, expected = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target="llvm", params=params, executor=AOT)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    executor = tvm.runtime.executor.AotModule(loaded["default"](tvm.cpu(0)))
    boltgen_launches()
    for _ in range(2):
        executor.set_input("x", x)
        executor.run()
        output = executor.get_output(0).numpy()
        np.testing.assert_allclose(output, expected, atol=TOLERANCE, rtol=0)
    assert len(boltgen_launches()) == 2 * 4


def test_aot_executor_for_target_cuda_is_refused_by_tvm(model: Any, tmp_path: Path) -> None:
    """TVM allocates every tensor of its `main` in host memory, where CUDA kernels do not look."""
    module, params, _, _ = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=TARGET, params=params, executor=AOT)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    with pytest.raises(tvm.TVMError, match="AOTExecutor supports only execution on kDLCPU"):
        loaded["default"](tvm.cuda(0))


def test_graph_executor_with_the_rest_on_the_cpu(model: Any, tmp_path: Path) -> None:
    module, params, x, expected = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target="llvm", params=params)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    executor = graph_executor.GraphModule(loaded["default"](tvm.cpu(0)))
    boltgen_launches()
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, atol=TOLERANCE, rtol=0)
    assert len(boltgen_launches()) == 4


def test_virtual_machine(model: Any, tmp_path: Path) -> None:
    module, params, x, expected = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.vm.compile(module, target=TARGET, params=params)
    code, _ = built.save()
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    executable = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(library)))
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cuda(0))
    boltgen_launches()
    output = machine.run(tvm.nd.array(x, tvm.cuda(0)))
    np.testing.assert_allclose(output.numpy(), expected, atol=TOLERANCE, rtol=0)
    assert len(boltgen_launches()) == 4


def test_tvms_own_linking(model: Any, tmp_path: Path) -> None:
    """`export_library` as TVM has it: g++, the CUDA runtime found in the process."""
    module, _, x, expected = model
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=TARGET)
    built.export_library(str(tmp_path / "model.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "model.so"))
    executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, atol=TOLERANCE, rtol=0)


def test_parameters_given_at_the_build_only(tmp_path: Path) -> None:
    """Weights that partition does not see stay arguments, and are laid out by TVM."""
    module, params, x, expected = imported()
    partitioned = boltgen.relay.partition(module)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(partitioned, target=TARGET, params=params)
    executor = reloaded(built, tmp_path)
    boltgen_launches()
    executor.run(x=x.numpy())
    np.testing.assert_allclose(
        executor.get_output(0).numpy(), expected.numpy(), atol=TOLERANCE, rtol=0
    )
    assert len(boltgen_launches()) == 4


def test_a_module_that_another_process_partitioned(model: Any, tmp_path: Path) -> None:
    module, _, x, expected = model
    (tmp_path / "module.json").write_text(tvm.ir.save_json(module))
    np.save(tmp_path / "x.npy", x)
    script = f"""
import boltgen.relay, json, numpy, tvm
from tvm import relay
from tvm.contrib import graph_executor
module = tvm.ir.load_json(open({str(tmp_path / "module.json")!r}).read())
target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    built = relay.build(module, target=target)
library = boltgen.relay.export_library(built, {str(tmp_path / "model.so")!r})
loaded = tvm.runtime.load_module(str(library))
executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
executor.run(x=numpy.load({str(tmp_path / "x.npy")!r}))
print(json.dumps(executor.get_output(0).numpy().tolist()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    output = np.array(json.loads(done.stdout.splitlines()[-1]))
    np.testing.assert_allclose(output, expected, atol=TOLERANCE, rtol=0)


def test_inputs_and_outputs_keep_their_types(model: Any) -> None:
    function = model[0]["main"]
    (param,) = function.params
    assert (tuple(map(int, param.checked_type.shape)), param.checked_type.dtype) == (
        SHAPE,
        "float32",
    )
    assert function.checked_type.ret_type.dtype == "float32"


@pytest.mark.parametrize("arch", ["sm_100", "sm_121"])
def test_tvm_builds_what_is_left_for_an_arch_of_three_digits(arch: str, tmp_path: Path) -> None:
    """TVM 0.17 takes sm_100 for compute capability 1.0; boltgen's nvcc is told the arch by name."""
    x = relay.var("x", shape=(8, 32), dtype="float16")
    w = relay.var("w", shape=(16, 32), dtype="float16")
    module = tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.dense(x, w)))
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=tvm.target.Target(f"cuda -arch={arch}", host="llvm"))
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(8, 32)), "w": rng.normal(size=(16, 32))}
    vgpu.set_option("device", arch)
    try:
        executor = reloaded(built, tmp_path)
        executor.run(**{name: array.astype(np.float16) for name, array in inputs.items()})
        found = executor.get_output(0).numpy()
    finally:
        vgpu.set_option("device", "sm_80")
    powers = np.exp(inputs["x"] @ inputs["w"].T)
    # FP16's sums of 32 products of about 1, whose error of 32 ulps a softmax at most passes on.
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), atol=32 * 2.0**-10)
