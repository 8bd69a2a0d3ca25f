"""Kernels that TVM generates for operators that boltgen leaves to it, against TVM on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
from boltgen.device.choose import activate
device = activate("vgpu", arch="sm_80")
device.vgpu.set_option("check", "all")
import tvm
from tvm import relax
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.tvm_build.relax_link import build_library
from boltgen.settings import settings_from

op = relax.op
nn = op.nn
one = relax.const(1.0, "float32")
CASES = {
    "softmax": (lambda x: nn.softmax(x, -1), "float16", (5, 100)),
    "layer_norm": (lambda x, g, b: nn.layer_norm(x, g, b, -1), "float16", (4, 10, 96), (96,),
                   (96,)),
    "max_pool": (lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"), "float16",
                 (1, 15, 15, 24)),
    "avg_pool": (lambda x: nn.avg_pool2d(x, (2, 2), (2, 2), layout="NHWC"), "float16",
                 (1, 14, 14, 24)),
    "global_pool": (lambda x: nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), "float16",
                    (2, 7, 7, 40)),
    "transpose": (lambda x: op.permute_dims(x, [0, 2, 1]), "float16", (2, 33, 65)),
    "concat": (lambda x, y: op.concat([x, y], 1), "float16", (3, 5, 7), (3, 9, 7)),
    "gelu": (lambda x: nn.gelu(x), "float16", (7, 300)),
    "silu": (lambda x: nn.silu(x), "float16", (7, 300)),
    "erf": (lambda x: op.erf(x), "float32", (7, 300)),
    "tanh": (lambda x: op.tanh(x), "float32", (7, 300)),
    "power": (lambda x, y: op.power(op.abs(x), y), "float32", (7, 300), (7, 300)),
    "log": (lambda x: op.log(op.add(op.abs(x), one)), "float32", (7, 300)),
    "rsqrt": (lambda x: op.rsqrt(op.add(op.abs(x), one)), "float32", (7, 300)),
    "cast": (lambda x: op.astype(x, "float32"), "float16", (7, 300)),
    "mean": (lambda x: op.mean(x, -1), "float32", (7, 300)),
    "sum": (lambda x: op.sum(x, [0]), "float32", (70, 30)),
    "max": (lambda x: op.max(x, -1), "float16", (7, 300)),
    "matmul": (lambda x, y: op.matmul(x, y), "float32", (70, 64), (64, 96)),
    "convolution": (lambda x, w: nn.conv2d(x, w, strides=(2, 2), padding=(1, 1)), "float32",
                    (1, 8, 15, 15), (12, 8, 3, 3)),
    "depthwise": (lambda x, w: nn.conv2d(x, w, padding=(1, 1), groups=24, data_layout="NHWC",
                                         kernel_layout="OHWI"), "float16",
                  (1, 9, 9, 24), (24, 3, 3, 1)),
    "slice": (lambda x: op.strided_slice(x, [1], [1], [30], [2]), "float16", (5, 33, 3)),
    "argmax": (lambda x: op.argmax(x, 1), "float16", (7, 300)),
}
builder = relax.BlockBuilder()
for name, (make, dtype, *shapes) in CASES.items():
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function(name, inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(make(*inputs)))
        builder.emit_func_output(result)
module = builder.get()
settings = settings_from()
arch = arch_named("sm_80")
executable, _ = build_library(module, arch, find_toolchain(settings), Cache(settings.cache_dir))
gpu = relax.VirtualMachine(executable, tvm.cuda(0))
cpu = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
rng = np.random.default_rng(0)
for name, (_, dtype, *shapes) in CASES.items():
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    found, wanted = (
        machine[name](*[tvm.runtime.tensor(a, where) for a in arrays]).numpy()
        for machine, where in ((gpu, tvm.cuda(0)), (cpu, tvm.cpu()))
    )
    tolerance = 2e-2 if found.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=name)
findings = [finding.message for finding in device.vgpu.findings()]
assert not findings, findings
print("kernels launched:", len({launch.kernel for launch in device.vgpu.launches()}))
"""


def test_operators_run_as_tvm_compiles_them() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split(":")[-1]) == 23, "one kernel for each"
