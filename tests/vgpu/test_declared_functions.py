"""Every function that CUDA's headers declare is there; what is not implemented says so."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.driver import Driver
from boltgen.paths import resource_dir
from tests.vgpu.cuda_programs import link, run

_SCRIPT = resource_dir("vgpu") / "declared_names.py"
_NOT_SUPPORTED = 801
# Functions of the runtime that return no code, and those of nvcc's host stubs.
_OTHERS = ("cudaCreateChannelDesc", "cudaGetErrorName", "cudaGetErrorString")


def exported(library: Path) -> set[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


def declared(folder: str) -> set[str]:
    text = (resource_dir("vgpu") / folder / "names.h").read_text(encoding="utf-8")
    return set(re.findall(r"^(?:MISSING|PER_THREAD)\((\w+)", text, re.MULTILINE))


def test_the_tables_are_what_the_headers_say() -> None:
    if importlib.util.find_spec("nvidia.cu13") is None:
        pytest.skip("the wheel with CUDA 13's headers is not installed")
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("library", "folder", "least"),
    [("libcudart.so.13", "cudart", 400), ("libcuda.so.1", "driver", 650)],
)
def test_all_declared_functions_are_exported(
    library_folder: Path, library: str, folder: str, least: int
) -> None:
    names = declared(folder)
    assert len(names) >= least
    if folder == "cudart":
        names.update(_OTHERS)
    assert names - exported(library_folder / library) == set()


def test_nothing_is_missing_that_cudas_own_runtime_exports(library_folder: Path) -> None:
    wheel = importlib.util.find_spec("nvidia.cu13")
    if wheel is None or not wheel.submodule_search_locations:
        pytest.skip("the wheel with CUDA 13's runtime is not installed")
    real = Path(next(iter(wheel.submodule_search_locations))) / "lib" / "libcudart.so.13"
    wanted = {name for name in exported(real) if name.startswith(("cuda", "__cuda"))}
    assert wanted - exported(library_folder / "libcudart.so.13") == set()


def test_what_is_not_there_says_so_once(driver: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    cuda = driver._cuda
    for _ in range(2):
        assert cuda.cuMulticastCreate(None, None) == _NOT_SUPPORTED
    assert capfd.readouterr().err.count("cuMulticastCreate is not supported") == 1
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(_NOT_SUPPORTED, ctypes.byref(text))
    assert b"cuMulticastCreate is not supported by the virtual GPU" in (text.value or b"")


def test_the_newest_version_that_is_there_is_found_by_name(driver: Driver) -> None:
    found = ctypes.c_void_p()
    get = driver._cuda.cuGetProcAddress_v2
    # The second version is declared and not implemented, the first one is.
    assert get(b"cuLaunchKernel", ctypes.byref(found), 13000, ctypes.c_uint64(0), None) == 0
    assert found.value == ctypes.cast(driver._cuda.cuLaunchKernel, ctypes.c_void_p).value
    per_thread = ctypes.c_uint64(2)
    assert get(b"cuLaunchKernel", ctypes.byref(found), 13000, per_thread, None) == 0
    assert found.value == ctypes.cast(driver._cuda.cuLaunchKernel_ptsz, ctypes.c_void_p).value
    assert get(b"cuNoSuchCall", ctypes.byref(found), 13000, ctypes.c_uint64(0), None) == 500


@pytest.mark.parametrize("name", ["attributes", "conditions"])
def test_programs_that_ask_for_more(library_folder: Path, tmp_path: Path, name: str) -> None:
    program = link(name, library_folder / "libcudart.so.13", tmp_path)
    out, error = run(program, library_folder, device="sm_75")
    assert out == "passed\n"
    if name == "attributes":
        assert error.count("cudaMallocArray is not supported by the virtual GPU") == 1
