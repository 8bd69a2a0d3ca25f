"""The function of every row of `UnaryOp` in boltgen/activations.h, executed.

The error allowed is the one that `ir.functions` derives from CUDA's documented accuracies: it is
relative to FP32, so far below the rounding to FP16 that follows in a kernel.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.cases.kernels import split_k_cases
from benchmarks.harness.kernel_launch import Array, Cuda
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.source import KernelSource
from boltgen.ir.functions import FP32_ULP, UnaryOp
from boltgen.settings import settings_from

# Results below FP32's normal numbers may be flushed to zero.
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


# Functions of boltgen/activations.h by name, each with how many constants it takes.
NAMES = {op.value: len(op.parameters) for op in UnaryOp} | {"maximum": 1, "minimum": 1}


def source_text() -> str:
    """A kernel that applies the function of a number, in the order of `NAMES`, to an array."""
    cases = "".join(
        f"case {number}: return boltgen::{name}({', '.join(('x', 'p', 'q')[: 1 + constants])});\n"
        for number, (name, constants) in enumerate(NAMES.items())
    )
    return f"""#include "boltgen/activations.h"

__device__ float apply(int function, float x, float p, float q) {{
  switch (function) {{
{cases}
  }}
  __trap();
  return 0.0f;
}}

__global__ void table(int function, float const* x, float* y, int count, float p, float q) {{
  int const i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {{
    y[i] = apply(function, x[i], p, q);
  }}
}}

extern "C" int run_table(int function, float const* x, float* y, int count, float p, float q) {{
  table<<<(count + 255) / 256, 256>>>(function, x, y, count, p, q);
  return int(cudaGetLastError());
}}
"""


@pytest.fixture(scope="module")
def table(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    chosen = settings_from()
    tools = find_toolchain(chosen)
    source = KernelSource(
        spec=split_k_cases()[0].spec,
        symbol="activation_table",
        workspace_symbol="",
        text=source_text(),
    )
    compiled = compile_unit(kernel_unit(source, tools, DeviceCode.PTX), Cache(chosen.cache_dir))
    assert isinstance(compiled, CompiledObject), compiled.message
    path = tmp_path_factory.mktemp("table") / "libtable.so"
    return ctypes.CDLL(str(link_shared([compiled.path], path, tools)))


@pytest.fixture(scope="module")
def arguments() -> Array:
    """Every FP16 value, NaN and infinities among them, and FP32 values between and beyond."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = np.random.default_rng(0).normal(scale=4, size=20_000).astype(np.float32)
    beyond = np.geomspace(1e4, np.finfo(np.float32).max, 500, dtype=np.float32)
    return np.concatenate([halves, between, beyond, -beyond])


def _apply(cuda: Cuda, table: ctypes.CDLL, name: str, x: Array, *constants: float) -> Array:
    cuda.become("sm_80")
    p, q = (*constants, 0.0, 0.0)[:2]
    source, target = cuda.upload(x), cuda.upload(np.zeros_like(x))
    status = table.run_table(
        list(NAMES).index(name),
        ctypes.c_void_p(source),
        ctypes.c_void_p(target),
        x.size,
        ctypes.c_float(p),
        ctypes.c_float(q),
    )
    cuda.check(status)
    cuda.synchronise()
    result = cuda.download(target, x)
    cuda.free_all()
    return result


@pytest.mark.parametrize("op", UnaryOp, ids=lambda op: op.value)
def test_function_is_accurate_in_fp32(
    op: UnaryOp, cuda: Cuda, table: ctypes.CDLL, arguments: Array
) -> None:
    constants = tuple(float(np.float32(c)) for c in op.function.parameters.values())
    result = _apply(cuda, table, op.value, arguments, *constants)
    function = op.function
    with np.errstate(all="ignore"):
        actual, x = result.astype(np.float64), arguments.astype(np.float64)
        expected = function.value(x, *constants)
        bound = _SMALLEST_NORMAL + FP32_ULP * (
            function.ulps * np.abs(expected)
            + function.input_ulps * np.where(np.isfinite(x), np.abs(x), 0.0)
            + function.unit_ulps(*constants)
        )
        overflow = np.abs(expected) > np.finfo(np.float32).max
        right = np.where(overflow, np.isinf(actual), np.abs(actual - expected) <= bound)
    right |= actual == expected  # infinities
    right |= np.isnan(actual) & np.isnan(expected)
    # x f(x) with f(-inf) = 0: whether that is 0 or NaN is nobody's promise.
    right |= np.isneginf(x) & np.isnan(expected)
    worst = np.flatnonzero(~right)[:5]
    assert right.all(), [(x[i], actual[i], expected[i], bound[i]) for i in worst]
    assert np.isnan(actual[np.isnan(x)]).all()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("other", [0.5, float("nan"), float("-inf")])
def test_extremes_are_numpys(
    name: str, other: float, cuda: Cuda, table: ctypes.CDLL, arguments: Array
) -> None:
    actual = _apply(cuda, table, name, arguments, other)
    function = np.maximum if name == "maximum" else np.minimum
    assert np.array_equal(actual, function(arguments, np.float32(other)), equal_nan=True)
