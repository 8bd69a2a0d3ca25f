"""cudaDeviceSetLimit and cuCtxSetLimit: stacks that overflow, and printf's ring of bytes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from benchmarks.harness.driver import Driver
from tests.vgpu.cuda_programs import link, run
from tests.vgpu.refusals import Code, refused

STACK, PRINTF, HEAP = 0, 1, 2  # CUlimit


@pytest.fixture(scope="module")
def limits(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    return link("limits", library_folder / "libcudart.so.13", folder, arch="sm_80")


@pytest.mark.parametrize("check", ["none", "initcheck,racecheck"])
def test_a_stack_overflows_where_its_limit_is(
    limits: Path, library_folder: Path, check: str
) -> None:
    out, err = run(limits, library_folder, "stack", device="sm_80", check=check)
    assert out.splitlines() == [
        "4 calls: cudaSuccess",
        "40 calls: cudaErrorHardwareStackError",
        "larger: cudaSuccess",
        "1000 calls: cudaSuccess",
        "right: 1",
        "after a reset: 1024",
        "too large: cudaErrorInvalidValue",
        "no limit: cudaErrorUnsupportedLimit",
    ]
    assert "stack overflow: " in err
    assert "bytes of a thread's stack of 1024 (cudaDeviceSetLimit(cudaLimitStackSize" in err
    assert "in kernel 'recurse', block (0,0,0), thread (0,0,0)" in err
    assert err.count("vgpu: ") == 1


def test_what_is_printed_beyond_the_limit_overwrites_the_oldest(
    limits: Path, library_folder: Path
) -> None:
    out, err = run(limits, library_folder, "prints", device="sm_80")
    # An entry takes 24 bytes: the ring holds the last ten.
    assert out.splitlines() == [
        "size: cudaSuccess",
        *(f"line {k}" for k in range(10)),
        "that many: cudaSuccess",
        *(f"line {k}" for k in range(90, 100)),
        "more: cudaSuccess",
        "later: cudaErrorInvalidValue",
        "kept: 240",
        "after a reset: 1048576",
        "then: cudaSuccess",
    ]
    assert err == (
        "vgpu: kernel 'count' printed more than the 240 bytes of cudaLimitPrintfFifoSize hold: the "
        "first 90 of its 100 calls of printf are lost, as on a GPU\n"
    )


def test_limits_through_the_driver(driver: Driver) -> None:
    def limit(which: int) -> int:
        value = ctypes.c_size_t()
        driver.call("cuCtxGetLimit", ctypes.byref(value), which)
        return value.value

    def set_limit(which: int, value: int) -> None:
        driver.call("cuCtxSetLimit", which, ctypes.c_size_t(value))

    assert [limit(which) for which in (STACK, PRINTF, HEAP)] == [1024, 1 << 20, 8 << 20]
    set_limit(STACK, 4096)
    assert limit(STACK) == 4096
    with refused(Code.INVALID_VALUE, "524288"):
        set_limit(STACK, 1 << 20)
    with refused(Code.UNSUPPORTED_LIMIT, "7"):
        set_limit(7, 1)
    set_limit(STACK, 1024)
