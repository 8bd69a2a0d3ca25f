"""Schedules of TVM's own for tensor cores: dlight's (wmma), and its tests' (ldmatrix and mma)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import functools
import inspect

# For each of the intrinsics that TVM defines when they are imported it has Python look for the
# source lines of all frames, in every module that is loaded: a minute. It uses none of them.
inspect.stack = functools.partial(inspect.stack, 0)
inspect.getsourcefile = inspect.getfile
import importlib.metadata
# With a newer one TVM ends the process where a schedule is tensorised.
installed = importlib.metadata.version("apache-tvm-ffi")
assert installed == "0.1.14.post0", f"{installed} is not what pyproject.toml pins: run `make`"
import ml_dtypes
import numpy as np
import tvm_ffi
from boltgen.device.choose import activate
device = activate("vgpu", arch="sm_89")
device.vgpu.set_option("check", "all")
import tvm
from tvm import te
from tvm.s_tir import dlight
from tvm.s_tir.tensor_intrin import cuda as intrinsics
from tvm.testing.tir import mma_schedule
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.tvm_build.cuda_compiler import CudaCompiler
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.settings import settings_from

arch = arch_named("sm_89")
target = cuda_target(arch)
settings = settings_from()
compiler = CudaCompiler(arch, find_toolchain(settings), Cache(settings.cache_dir))
registry = (tvm_ffi.get_global_func, tvm_ffi.register_global_func)
rng = np.random.default_rng(0)


def product(m, n, k, dtype, out, transposed):
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k) if transposed else (k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(i, j):
        right = b[j, r] if transposed else b[r, j]
        return te.sum(a[i, r].astype(out) * right.astype(out), axis=r)

    return te.create_prim_func([a, b, te.compute((m, n), element, name="C")])


def by_dlight(m, n, k, dtype, out, transposed):
    with target:
        module = tvm.IRModule({"main": product(m, n, k, dtype, out, transposed)})
        return dlight.ApplyDefaultSchedule(dlight.gpu.Matmul())(module)


def by_mma(m, n, k, dtype, out, transposed):
    depth = 16 if dtype == "float16" else 32

    def tiles(rows, columns, layout):
        return lambda i, j: (i // rows, j // columns, *layout(i % rows, j % columns))

    square = tiles(16, 16, intrinsics.shared_16x16_to_ldmatrix_32x8_layout)
    wide = tiles(16, 32, intrinsics.shared_16x32_to_ldmatrix_32x16_layout)
    tall = tiles(32, 16, intrinsics.shared_32x16_to_ldmatrix_32x16_layout)
    left, right = (square, square) if depth == 16 else (wide, wide if transposed else tall)
    group = intrinsics.get_mma_intrin_group(
        "shared", "global", dtype, out, False, transposed, not_use_mma_store_intrinic=False
    )
    names = [group[role] for role in ("load_a", "load_b", "compute", "init", "store")]
    factors = [1, 2, 2, 1, 2], [1, 1, 2, 2, 2], [k // depth // 2, 1, 2]
    workload = product(m, n, k, dtype, out, transposed)
    return mma_schedule(
        workload, depth, dtype, transposed, *factors, left, right, square, *names
    ).mod


def operand(shape, dtype):
    if dtype == "int8":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def check(schedule, instruction, shape, dtype, out, transposed):
    m, n, k = shape
    module = schedule(m, n, k, dtype, out, transposed)
    with compiler.installed(compiler.compile, *registry), target:
        built = tvm.compile(module, target=target)
    assert instruction in compiler.sources[-1].read_text(), compiler.sources[-1]
    a, b = operand((m, k), dtype), operand((n, k) if transposed else (k, n), dtype)
    tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, b, np.zeros((m, n), out))]
    built(*tensors)
    left, right = a.astype(np.float64), b.astype(np.float64)
    right = right.T if transposed else right
    # Sums of k products in the accumulator's precision, whose operands are exact.
    rounding = 0 if out == "int32" else k * np.finfo(out).eps / 2
    error = np.abs(tensors[2].numpy() - left @ right)
    assert (error <= rounding * (np.abs(left) @ np.abs(right))).all(), (dtype, out, error.max())
    findings = [finding.message for finding in device.vgpu.findings()]
    assert not findings, findings


# dlight has schedules for FP16 and INT8 sums too, which this TVM cannot compile: its software
# pipeline does not know their fragments.
check(by_dlight, "nvcuda::wmma::mma_sync", (100, 72, 96), "float16", "float32", True)
check(by_dlight, "nvcuda::wmma::mma_sync", (128, 128, 96), "float16", "float32", False)
for dtype, out, transposed in (
    ("float16", "float32", False),
    ("float16", "float16", True),
    ("int8", "int32", True),
    ("int8", "int32", False),
    ("float8_e4m3fn", "float32", True),
    ("float8_e5m2", "float32", True),
):
    check(by_mma, "mma.sync.aligned.m16n8k", (128, 128, 128), dtype, out, transposed)
print("products:", len(device.vgpu.launches()))
"""


def test_schedules_for_tensor_cores_run_as_tvm_compiles_them() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "products: 8\n"
