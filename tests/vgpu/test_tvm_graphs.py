"""CUDA graphs that TVM makes of a Relax model (RewriteCUDAGraph): capture and replay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
from boltgen.device.choose import activate
device = activate("vgpu", arch="sm_80")
device.vgpu.set_option("check", "all")
import tvm
from tvm import relax
import boltgen.relax
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.tvm_build.relax_link import build_library
from boltgen.settings import settings_from

op = relax.op
shapes = ((16, 4096), (4096, 64), (64, 128), (128, 64))

def model():
    builder = relax.BlockBuilder()
    x, u, v, w = (
        relax.Var(name, relax.TensorType(shape, "float16"))
        for name, shape in zip("xuvw", shapes)
    )
    # What depends on the input's address stays outside of the graph; weights keep theirs.
    with builder.function("main", [x, u, v, w], attrs={"num_input": 1}):
        with builder.dataflow():
            a = builder.emit(op.nn.softmax(x, -1))
            b = builder.emit(op.matmul(a, u))
            c = builder.emit(op.nn.relu(op.matmul(b, v)))
            d = builder.emit(op.matmul(c, w))
            result = builder.emit_output(builder.emit(op.add(op.nn.softmax(d, -1), d)))
        builder.emit_func_output(result)
    return builder.get()

partitioned = sys.argv[1] == "boltgen"
settings = settings_from()
tools = find_toolchain(settings)
module = boltgen.relax.partition(model(), arch="sm_80") if partitioned else model()
with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
    executable, _ = build_library(module, arch_named("sm_80"), tools, Cache(settings.cache_dir))
gpu = relax.VirtualMachine(executable, tvm.cuda(0))
cpu = relax.VirtualMachine(tvm.compile(model(), target="llvm"), tvm.cpu())
called = []
gpu.set_instrument(lambda function, name, before, result, *arguments: called.append(name)
                   if before else None)
rng = np.random.default_rng(0)
weights = [
    (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float16) for shape in shapes[1:]
]
on_gpu = [tvm.runtime.tensor(weight, tvm.cuda(0)) for weight in weights]
on_cpu = [tvm.runtime.tensor(weight) for weight in weights]
captured = executable.as_text().split("@main_cuda_graph_capture:")[1].split("\\n\\n")[0]
inside = {name for name in captured.split() if "matmul" in name}
# Two of the three products may be one chain.
assert len(inside) >= 2 and all(("boltgen" in name) == partitioned for name in inside), inside
launched = []
for turn in range(3):
    device.vgpu.clear_launches()
    called.clear()
    x = rng.standard_normal(shapes[0]).astype(np.float16)
    found = gpu["main"](tvm.runtime.tensor(x, tvm.cuda(0)), *on_gpu).numpy()
    wanted = cpu["main"](tvm.runtime.tensor(x), *on_cpu).numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2)
    assert "vm.builtin.cuda_graph.run_or_capture" in called
    assert inside.isdisjoint(called) == (turn > 0), (turn, called)  # a replay calls no host code
    launched.append([(launch.kernel, launch.grid) for launch in device.vgpu.launches()])
assert launched[1] == launched[2] and len(launched[1]) >= 4, launched
assert sorted(set(launched[0])) == sorted(set(launched[1]))
# The long product is split along K: its workspace is one of the tensors that TVM has planned.
assert not partitioned or any(grid[2] > 1 for _, grid in launched[1]), launched
findings = [finding.message for finding in device.vgpu.findings()]
assert not findings, findings
print("replayed", len(launched[1]))
"""


@pytest.mark.parametrize("whose", ["tvm", "boltgen"])
def test_a_model_is_captured_and_replayed(whose: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PROGRAM, whose]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("replayed")
