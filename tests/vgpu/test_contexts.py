"""Contexts of the driver: what is current to each thread, and what no context or pointer is."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.harness.driver import CudaError, Driver, entry
from tests.vgpu.refusals import Code, refused

INVALID_VALUE = 1


def create(driver: Driver) -> int:
    context = ctypes.c_void_p()
    driver.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    assert context.value
    return context.value


def current(driver: Driver) -> int | None:
    context = ctypes.c_void_p()
    driver.call("cuCtxGetCurrent", ctypes.byref(context))
    return context.value


def call(driver: Driver, name: str, context: int | None) -> None:
    driver.call(name, ctypes.c_void_p(context))


def test_the_contexts_of_a_thread_are_a_stack(driver: Driver) -> None:
    primary = current(driver)
    first, second = create(driver), create(driver)
    assert current(driver) == second
    popped = ctypes.c_void_p()
    driver.call("cuCtxPopCurrent_v2", ctypes.byref(popped))
    assert (popped.value, current(driver)) == (second, first)
    call(driver, "cuCtxPushCurrent_v2", second)
    call(driver, "cuCtxSetCurrent", first)
    assert current(driver) == first
    call(driver, "cuCtxDestroy_v2", first)
    assert current(driver) == primary, "it was twice on the stack"
    call(driver, "cuCtxDestroy_v2", second)
    for name in ("cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuCtxDestroy_v2"):
        with refused(Code.INVALID_CONTEXT, name.removesuffix("_v2")):
            call(driver, name, second)
    with refused(Code.INVALID_CONTEXT, "cuCtxPopCurrent"):
        call(driver, "cuCtxPopCurrent_v2", None)


def test_threads_work_in_contexts_of_their_own(driver: Driver) -> None:
    ptx = entry(
        ["u64", "u32"],
        ".reg .b32 %r<4>; .reg .b64 %d<3>;",
        """
        ld.param.u64 %d0, [p0]; ld.param.u32 %r0, [p1]; mov.u32 %r1, %tid.x;
        mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d0, %d1; mul.lo.u32 %r2, %r0, %r1;
        st.global.u32 [%d1], %r2; ret;
        """,
    )
    function = driver.function(driver.load(ptx), "k")
    primary = current(driver)

    def work(number: int) -> tuple[int, bool]:
        context = create(driver)
        for _ in range(20):
            out = driver.buffer(np.zeros(64, np.uint32))
            driver.launch(function, [out, number], block=(64, 1, 1))
            right = np.array_equal(driver.read(out), np.arange(64, dtype=np.uint32) * number)
            if not right or current(driver) != context:
                return context, False
        call(driver, "cuCtxDestroy_v2", context)
        return context, True

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(work, range(1, 9)))
    assert all(right for _, right in done)
    assert current(driver) == primary


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cuCtxCreate_v2", (None, 0, 0)),
        ("cuCtxGetCurrent", (None,)),
        ("cuCtxGetDevice", (None,)),
        ("cuCtxGetApiVersion", (None, None)),
        ("cuCtxGetLimit", (None, 0)),
        ("cuDevicePrimaryCtxRetain", (None, 0)),
        ("cuDevicePrimaryCtxGetState", (0, None, None)),
        ("cuDeviceGet", (None, 0)),
        ("cuDeviceGetCount", (None,)),
        ("cuDeviceGetName", (None, 10, 0)),
        ("cuDeviceTotalMem_v2", (None, 0)),
        ("cuDeviceComputeCapability", (None, None, 0)),
        ("cuDriverGetVersion", (None,)),
        ("cuGetErrorName", (1, None)),
        ("cuGetProcAddress", (None, None, 0, 0)),
    ],
)
def test_null_pointers_are_refused(driver: Driver, name: str, arguments: tuple[object]) -> None:
    with pytest.raises(CudaError) as raised:
        driver.call(name, *arguments)
    assert raised.value.code == INVALID_VALUE
    assert "null" in str(raised.value) or "nowhere to go" in str(raised.value)


def test_occupancy_through_the_driver(driver: Driver) -> None:
    ptx = entry([], ".reg .b32 %r<2>;", "mov.u32 %r0, tile; ret;", ".shared .b8 tile[20000];")
    function = driver.function(driver.load(ptx), "k")

    def blocks(threads: int, shared: int) -> int:
        found = ctypes.c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        driver.call(name, ctypes.byref(found), function, threads, ctypes.c_size_t(shared))
        return found.value

    # An A100's multiprocessor: 2048 threads, 164 KiB of shared memory, 1 KiB of it the system's
    # for each block. Source: CUDA C++ Programming Guide, technical specifications.
    assert blocks(1024, 0) == 2
    assert blocks(32, 0) == 164 * 1024 // (20000 + 1024)
    assert blocks(32, 30000) == 164 * 1024 // (50000 + 1024)
