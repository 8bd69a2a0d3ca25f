"""Linking, with the machine's own linker."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.build.link import link_shared
from boltgen.build.toolchain import Toolchain, find_host_compiler, find_toolchain
from boltgen.errors import ToolchainError
from boltgen.settings import settings_from


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    return find_toolchain(settings_from())


def compile_c(folder: Path, name: str, text: str) -> Path:
    (folder / f"{name}.c").write_text(text)
    compiler = str(find_host_compiler(settings_from()).path)
    command = [compiler, "-x", "c", "-c", "-fPIC", f"{name}.c", "-o", f"{name}.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / f"{name}.o"


def test_a_library_that_needs_no_cuda_can_be_called(tools: Toolchain, tmp_path: Path) -> None:
    object_file = compile_c(tmp_path, "seven", "int seven(void) { return 7; }")
    library = link_shared([object_file], tmp_path / "a 'b'.so", tools)
    assert ctypes.CDLL(str(library)).seven() == 7
    assert {path.name for path in tmp_path.iterdir()} == {"seven.c", "seven.o", "a 'b'.so"}


def test_copies_of_an_object_are_linked_once(tools: Toolchain, tmp_path: Path) -> None:
    first = compile_c(tmp_path, "seven", "int seven(void) { return 7; }")
    copy = tmp_path / "copy.o"
    copy.write_bytes(first.read_bytes())
    library = link_shared([first, copy], tmp_path / "one.so", tools)
    assert ctypes.CDLL(str(library)).seven() == 7
    other = compile_c(tmp_path, "eight", "int seven(void) { return 8; }")
    with pytest.raises(ToolchainError, match="multiple definition of `seven'"):
        link_shared([first, other], tmp_path / "two.so", tools)


def test_two_libraries_each_call_their_own_kernels(tools: Toolchain, tmp_path: Path) -> None:
    libraries = []
    for number in (1, 2):
        text = f"int kernel(void) {{ return {number}; }} int model(void) {{ return kernel(); }}"
        object_file = compile_c(tmp_path, f"model{number}", text)
        path = link_shared([object_file], tmp_path / f"{number}.so", tools)
        libraries.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))
    assert [library.model() for library in libraries] == [1, 2]


def test_the_cuda_runtime_is_needed_by_name_and_found_by_no_path(
    tools: Toolchain, tmp_path: Path
) -> None:
    text = "int cudaGetLastError(void); int f(void) { return cudaGetLastError(); }"
    library = link_shared([compile_c(tmp_path, "f", text)], tmp_path / "f.so", tools)
    contents = library.read_bytes()
    assert tools.nvcc.runtime.name.encode() + b"\0" in contents
    assert str(tools.nvcc.runtime.parent).encode() not in contents


def test_what_the_linker_says_is_passed_on(tools: Toolchain, tmp_path: Path) -> None:
    first = compile_c(tmp_path, "first", "int twice(void) { return 1; }")
    second = compile_c(tmp_path, "second", "int twice(void) { return 2; }")
    with pytest.raises(ToolchainError) as caught:
        link_shared([first, second], tmp_path / "out.so", tools)
    assert f"cannot link {tmp_path / 'out.so'}" in str(caught.value)
    assert "multiple definition" in str(caught.value)
    assert not (tmp_path / "out.so").exists()


def test_a_linker_that_is_gone(tools: Toolchain, tmp_path: Path) -> None:
    gone = replace(tools, cxx=replace(tools.cxx, path=tmp_path / "gone"))
    with pytest.raises(ToolchainError, match=r"gone cannot be started: No such file"):
        link_shared([], tmp_path / "out.so", gone)
