"""GEMMs of CUTLASS in BF16, TF32 and INT8, on every instruction set of the host."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.cutlass_libraries import cutlass_library
from benchmarks.harness.driver import Array, Driver
from boltgen.device.vgpu import Vgpu
from tests.vgpu.fragments import instruction_sets

SHAPES = [(64, 64, 64), (72, 80, 96), (144, 48, 272)]


@pytest.fixture(scope="module")
def library(loaded: Vgpu) -> ctypes.CDLL:
    return ctypes.CDLL(str(cutlass_library(Path(__file__).with_name("cutlass_types.cu"), "sm_80")))


def _run(
    driver: Driver, function: str, library: ctypes.CDLL, tensors: tuple[Array, ...], alpha: float
) -> Array:
    """D = alpha A B + C / 2, of A [m, k], B [n, k] and C [m, n]."""
    a, b, c = tensors
    out = driver.buffer(np.full_like(c, 99))
    inputs = [driver.buffer(x) for x in tensors]
    addresses = [ctypes.c_void_p(x.address) for x in (*inputs, out)]
    code = getattr(library, function)(len(a), len(b), a.shape[1], *addresses, ctypes.c_float(alpha))
    assert code == 0, driver.vgpu.last_error()
    found = driver.read(out)
    for buffer in (*inputs, out):
        driver.free(buffer)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16(driver: Driver, library: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b, c = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k), (m, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64).T + 0.5 * c.astype(np.float64)
    first = None
    for isa in instruction_sets(driver):
        driver.vgpu.set_option("isa", isa)
        found = _run(driver, "gemm_bf16", library, (a, b, c), 1.0)
        # Half a unit in the last place of BF16, and the sum's roundings.
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2.0**-8, atol=2.0**-12)
        first = found if first is None else first
        np.testing.assert_array_equal(found.view(np.uint16), first.view(np.uint16))


@pytest.mark.parametrize("shape", SHAPES)
def test_tf32(driver: Driver, library: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k), (m, n)))

    def kept(x: Array) -> Array:  # to the nearest number of 10 bits, halfway away from zero
        words = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return words.view(np.float32).astype(np.float64)

    exact = kept(a) @ kept(b).T + 0.5 * c
    bound = (k + 2) * 2.0**-24 * (np.abs(kept(a)) @ np.abs(kept(b)).T + np.abs(c))
    first = None
    for isa in instruction_sets(driver):
        driver.vgpu.set_option("isa", isa)
        found = _run(driver, "gemm_tf32", library, (a, b, c), 1.0)
        assert (np.abs(found - exact) <= bound).all()
        first = found if first is None else first
        np.testing.assert_array_equal(found.view(np.uint32), first.view(np.uint32))


@pytest.mark.parametrize("shape", SHAPES)
def test_int8(driver: Driver, library: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b, c = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (n, k), (m, n)))
    sums = a.astype(np.int64) @ b.astype(np.int64).T
    # Exact in f32; some results are clamped.
    wanted = np.clip(np.rint(sums * 2.0**-9 + 0.5 * c), -128, 127)
    for isa in instruction_sets(driver):
        driver.vgpu.set_option("isa", isa)
        found = _run(driver, "gemm_int8", library, (a, b, c), 2.0**-9)
        np.testing.assert_array_equal(found, wanted)
