"""Kernels with as many bytes of parameters as CUDA allows, and with more."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.harness.driver import Driver
from tests.vgpu.refusals import Code, refused

MOST = 32764  # bytes of all parameters. Source: CUDA C++ Programming Guide


def kernel(nbytes: int) -> str:
    return f"""
.visible .entry k(.param .u64 out, .param .align 4 .b8 large[{nbytes - 8}])
{{
.reg .b32 %r<4>; .reg .b64 %d<4>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
mov.b64 %d2, large; add.u64 %d2, %d2, %d1; add.u64 %d2, %d2, {nbytes - 8 - 128};
ld.param.u32 %r1, [%d2]; st.global.u32 [%d0], %r1; ret;
}}
"""


def launch(driver: Driver, nbytes: int) -> None:
    function = driver.function(driver.load(kernel(nbytes)), "k")
    out = driver.buffer(np.zeros(32, np.uint32))
    words = np.arange((nbytes - 8) // 4, dtype=np.uint32)
    address = ctypes.c_uint64(out.address)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(address), words.ctypes.data)
    driver.call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
    driver.call("cuCtxSynchronize")
    np.testing.assert_array_equal(driver.read(out), words[-32:])


@pytest.mark.parametrize("nbytes", [4096, 4100, MOST])
def test_large_parameters_arrive(driver: Driver, nbytes: int) -> None:
    launch(driver, nbytes)


def test_what_no_gpu_takes_is_refused(driver: Driver) -> None:
    with refused(Code.INVALID_VALUE, str(MOST)):
        launch(driver, MOST + 4)
