"""The functions of boltgen/activations.h over all FP16 values, executed.

The error allowed is the one that `ir.functions` derives from CUDA's documented accuracies: it is
relative to FP32, so far below the rounding to FP16 that follows in a kernel.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, DeviceCode, kernel_unit
from boltgen.families.source import KernelSource
from boltgen.ir.epilogue import UnaryOp
from boltgen.ir.functions import FP32_ULP, FUNCTIONS
from boltgen.settings import settings_from
from tests.cases import split_k_cases
from tests.kernels.launch import Array, Cuda

SOURCE = Path(__file__).parent / "activation_table.cu"
CONSTANTS = {
    UnaryOp.LEAKY_RELU: (0.1,),
    UnaryOp.CLIP: (-1.0, 6.0),
    UnaryOp.HARDSIGMOID: (0.2, 0.5),
}
# Results below FP32's normal numbers may be flushed to zero.
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


@pytest.fixture(scope="module")
def table(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    chosen = settings_from()
    tools = find_toolchain(chosen)
    source = KernelSource(
        spec=split_k_cases()[0].spec,
        symbol="activation_table",
        workspace_symbol="",
        text=SOURCE.read_text(),
    )
    compiled = compile_unit(kernel_unit(source, tools, DeviceCode.PTX), Cache(chosen.cache_dir))
    assert isinstance(compiled, CompiledObject), compiled.message
    path = tmp_path_factory.mktemp("table") / "libtable.so"
    return ctypes.CDLL(str(link_shared([compiled.path], path, tools)))


@pytest.fixture(scope="module")
def arguments() -> Array:
    """Every FP16 value, NaN and infinities among them, and FP32 values between."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = np.random.default_rng(0).normal(scale=4, size=20_000).astype(np.float32)
    return np.concatenate([halves, between])


def _apply(cuda: Cuda, table: ctypes.CDLL, name: str, x: Array, *constants: float) -> Array:
    names = re.findall(r"[A-Z_]+", SOURCE.read_text().partition("enum Op {")[2].partition("}")[0])
    cuda.become("sm_80")
    p, q = (*constants, 0.0, 0.0)[:2]
    source, target = cuda.upload(x), cuda.upload(np.zeros_like(x))
    status = table.run_table(
        names.index(name),
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
    constants = tuple(float(np.float32(c)) for c in CONSTANTS.get(op, ()))
    result = _apply(cuda, table, op.name, arguments, *constants)
    function = FUNCTIONS[op]
    with np.errstate(all="ignore"):
        actual, x = result.astype(np.float64), arguments.astype(np.float64)
        expected = function.value(x, *constants)
        bound = _SMALLEST_NORMAL + FP32_ULP * (
            function.ulps * np.abs(expected)
            + function.input_ulps * np.abs(x)
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


@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize("other", [0.5, float("nan"), float("-inf")])
def test_extremes_are_numpys(
    name: str, other: float, cuda: Cuda, table: ctypes.CDLL, arguments: Array
) -> None:
    actual = _apply(cuda, table, name, arguments, other)
    function = np.maximum if name == "MAXIMUM" else np.minimum
    assert np.array_equal(actual, function(arguments, np.float32(other)), equal_nan=True)
