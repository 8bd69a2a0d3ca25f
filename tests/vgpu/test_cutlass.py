"""CUTLASS kernels from nvcc, as they would be deployed: numbers, and what must not go unseen."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.cutlass_libraries import cutlass_library
from benchmarks.harness.driver import Array, Buffer, Driver
from boltgen.device.vgpu import Vgpu
from tests.vgpu.fragments import several_instruction_sets

# All tensors of a test start with this, so an element that is not written shows.
POISON = np.float16(np.nan)


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, and how to load a changed copy of their PTX."""

    path: Path
    library: ctypes.CDLL

    def mutated(self, pattern: str, replacement: str, folder: Path) -> ctypes.CDLL:
        """The same library with PTX in which every match is replaced, length kept by blanks."""
        image = self.path.read_bytes()
        found = re.findall(pattern.encode(), image)
        assert found, f"{pattern} is not in the PTX"
        changed = re.sub(
            pattern.encode(), lambda m: replacement.encode().ljust(len(m.group())), image
        )
        path = folder / "mutated.so"
        path.write_bytes(changed)
        return ctypes.CDLL(str(path))


@pytest.fixture(scope="session")
def compiled(loaded: Vgpu) -> Kernels:
    path = cutlass_library(Path(__file__).with_name("cutlass_kernels.cu"), "sm_80")
    return Kernels(path, ctypes.CDLL(str(path)))


@pytest.fixture
def kernels(compiled: Kernels, driver: Driver) -> Iterator[Kernels]:
    yield compiled


@dataclass(frozen=True)
class Problem:
    a: Array
    b: Array
    c: Array
    exact: Array

    @staticmethod
    def random(m: int, n: int, k: int) -> Problem:
        rng = np.random.default_rng(m + n + k)
        a = rng.standard_normal((m, k)).astype(np.float16)
        b = rng.standard_normal((n, k)).astype(np.float16)
        c = rng.standard_normal((m, n)).astype(np.float16)
        exact = a.astype(np.float64) @ b.astype(np.float64).T + 0.5 * c
        return Problem(a, b, c, exact)


def _run(
    driver: Driver, library: ctypes.CDLL, name: str, problem: Problem, slices: int = 1
) -> Array:
    m, n = problem.c.shape
    d = driver.buffer(np.full((m, n), POISON))
    inputs = [driver.buffer(x) for x in (problem.a, problem.b, problem.c)]
    addresses = [ctypes.c_void_p(x.address) for x in (*inputs, d)]
    code = getattr(library, name)(m, n, problem.a.shape[1], *addresses, slices)
    assert code == 0, driver.vgpu.last_error()
    return driver.read(d)


def _assert_close(found: Array, exact: Array, tolerance: float = 2.0**-10) -> None:
    """Within half an ulp of FP16 and the rounding of the accumulation."""
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gemm_sm80", "gemm_sm75"])
@pytest.mark.parametrize("shape", [(8, 8, 8), (128, 128, 64), (200, 264, 72), (296, 136, 200)])
def test_gemm(driver: Driver, kernels: Kernels, name: str, shape: tuple[int, int, int]) -> None:
    problem = Problem.random(*shape)
    _assert_close(_run(driver, kernels.library, name, problem), problem.exact)


def test_gemm_with_half_accumulators(driver: Driver, kernels: Kernels) -> None:
    problem = Problem.random(200, 264, 72)
    found = _run(driver, kernels.library, "gemm_sm80_half", problem)
    _assert_close(found, problem.exact, tolerance=0.03)


@pytest.mark.parametrize("threads", [1, 2])
def test_serial_split_k_waits_for_its_semaphores(
    driver: Driver, kernels: Kernels, threads: int
) -> None:
    driver.vgpu.set_option("threads", threads)
    problem = Problem.random(136, 264, 328)
    found = _run(driver, kernels.library, "gemm_sm80", problem, slices=4)
    _assert_close(found, problem.exact, tolerance=0.03)  # partial sums are kept in FP16


def test_gemm_gives_the_same_bits_on_every_instruction_set(
    driver: Driver, kernels: Kernels
) -> None:
    problem = Problem.random(136, 136, 72)
    native = _run(driver, kernels.library, "gemm_sm80", problem)
    for isa in several_instruction_sets(driver):
        driver.vgpu.set_option("isa", isa)
        other = _run(driver, kernels.library, "gemm_sm80", problem)
        np.testing.assert_array_equal(native.view(np.uint16), other.view(np.uint16))


@pytest.mark.parametrize(
    "shape",
    [(2, 9, 11, 24, 72, 3, 1, 1), (1, 14, 13, 64, 136, 1, 0, 2), (3, 8, 8, 16, 8, 5, 2, 1)],
    ids=["3x3", "1x1 of stride 2", "5x5"],
)
def test_convolution(driver: Driver, kernels: Kernels, shape: tuple[int, ...]) -> None:
    n, h, w, c, k, r, pad, stride = shape
    rng = np.random.default_rng(c + k)
    x = rng.standard_normal((n, h, w, c)).astype(np.float16)
    weight = rng.standard_normal((k, r, r, c)).astype(np.float16)
    p, q = ((size + 2 * pad - r) // stride + 1 for size in (h, w))
    source = rng.standard_normal((n, p, q, k)).astype(np.float16)
    padded = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    exact = 0.5 * source.astype(np.float64)
    for i in range(r):
        for j in range(r):
            rows = slice(i, i + stride * (p - 1) + 1, stride)
            columns = slice(j, j + stride * (q - 1) + 1, stride)
            exact += padded[:, rows, columns] @ weight[:, i, j].astype(np.float64).T
    d = driver.buffer(np.full(source.shape, POISON))
    tensors = [driver.buffer(t) for t in (x, weight, source)]
    addresses = [ctypes.c_void_p(t.address) for t in (*tensors, d)]
    assert kernels.library.conv_sm80(n, h, w, c, k, r, pad, stride, *addresses) == 0
    _assert_close(driver.read(d), exact)


# --- negative controls: what is broken must be seen --------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"bar\.sync\s+0;", ""),
        # ".aligned" makes room; the virtual GPU does not need the word.
        (
            r"ldmatrix\.sync\.aligned\.x4\.m8n8\.shared\.b16",
            "ldmatrix.sync.x4.trans.m8n8.shared.b16",
        ),
        (r"cp\.async\.wait_group 1;", "cp.async.wait_group 2;"),
    ],
    ids=["barriers deleted", "ldmatrix transposed", "waits off by one"],
)
def test_a_broken_kernel_gives_wrong_numbers(
    driver: Driver, kernels: Kernels, tmp_path: Path, pattern: str, replacement: str
) -> None:
    library = kernels.mutated(pattern, replacement, tmp_path)
    problem = Problem.random(200, 264, 136)
    found = _run(driver, library, "gemm_sm80", problem).astype(np.float64)
    assert not np.allclose(found, problem.exact, rtol=0.01, atol=0.01, equal_nan=False)


# --- negative controls: the check that is meant finds it, and nothing in the intact kernels ------


@pytest.mark.parametrize("name", ["gemm_sm80", "gemm_sm75", "gemm_sm80_half"])
@pytest.mark.parametrize("slices", [1, 4])
def test_no_check_finds_anything_in_an_intact_gemm(
    driver: Driver, kernels: Kernels, name: str, slices: int
) -> None:
    driver.vgpu.set_option("check", "all")
    driver.vgpu.clear_findings()
    problem = Problem.random(200, 264, 200)
    _assert_close(_run(driver, kernels.library, name, problem, slices), problem.exact, 0.05)
    assert driver.vgpu.findings() == []


def test_no_check_finds_anything_in_an_intact_convolution(driver: Driver, kernels: Kernels) -> None:
    driver.vgpu.set_option("check", "all")
    driver.vgpu.clear_findings()
    tensors = [np.ones(shape, np.float16) for shape in ((2, 9, 11, 24), (72, 3, 3, 24))]
    buffers = [driver.buffer(t) for t in (*tensors, np.ones((2, 9, 11, 72), np.float16))]
    addresses = [ctypes.c_void_p(b.address) for b in (*buffers, buffers[-1])]
    assert kernels.library.conv_sm80(2, 9, 11, 24, 72, 3, 1, 1, *addresses) == 0
    driver.read(buffers[-1])
    assert driver.vgpu.findings() == []


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        (r"bar\.sync\s+0;", "", "racecheck: read after write"),
        (r"cp\.async\.wait_group 1;", "cp.async.wait_group 2;", "racecheck: access to a copy"),
        (r"cp\.async\.wait_group 1;", "", "racecheck: access to a copy"),
        (r"cp\.async\.cg\.shared[^;]*;", "membar.cta;", "initcheck: uninitialised result"),
        (r"st\.global\.release\.gpu\.b32 [^;]*;", "", "deadlock: deadlock"),
        (r"st\.global\.release\.gpu\.b32", "st.global.b32", "racecheck: read after write"),
    ],
    ids=[
        "barriers deleted",
        "waits off by one",
        "waits deleted",
        "copies deleted",
        "semaphore never raised",
        "semaphore without release",
    ],
)
def test_the_check_that_is_meant_finds_a_broken_kernel(  # noqa: PLR0917
    driver: Driver, kernels: Kernels, tmp_path: Path, pattern: str, replacement: str, expected: str
) -> None:
    library = kernels.mutated(pattern, replacement, tmp_path)
    driver.vgpu.set_option("check", "all")
    driver.vgpu.clear_findings()
    problem = Problem.random(200, 264, 200)
    tensors = (problem.a, problem.b, problem.c, np.full((200, 264), POISON))
    buffers = [driver.buffer(t) for t in tensors]
    addresses = [ctypes.c_void_p(x.address) for x in buffers]
    slices = 4 if "global" in pattern else 1
    if library.gemm_sm80(200, 264, 200, *addresses, slices) == 0:
        driver.read(buffers[-1])
    found = [f"{f.check}: {f.kind}" for f in driver.vgpu.findings()]
    assert [one for one in found if one.startswith(expected)], found


@pytest.mark.parametrize("short", ["a", "d"])
def test_a_tensor_eight_elements_short_is_reported(
    driver: Driver, kernels: Kernels, short: str
) -> None:
    problem = Problem.random(136, 264, 72)
    m, n = problem.c.shape

    def buffer(name: str, array: Array) -> Buffer:
        flat = array.reshape(-1)
        return driver.buffer(flat[:-8] if name == short else flat)

    tensors = {"a": problem.a, "b": problem.b, "c": problem.c, "d": np.full((m, n), POISON)}
    addresses = [ctypes.c_void_p(buffer(name, x).address) for name, x in tensors.items()]
    assert kernels.library.gemm_sm80(m, n, 72, *addresses, 1) != 0
    message = driver.vgpu.last_error()
    access = "read" if short == "a" else "write"
    assert f"out-of-bounds global {access} of 16 bytes in kernel 'cutlass::Kernel2<...>'" in message
    assert f"the {tensors[short].nbytes - 16}-byte allocation #" in message
    assert re.search(r"block \(\d+,\d+,\d+\), thread \(\d+,0,0\), PTX line \d+: ", message)
