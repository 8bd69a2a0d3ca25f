"""Which compiler is taken, and what is said of those that are not."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.build import toolchain
from boltgen.build.profiler import _commands
from boltgen.build.toolchain import Nvcc, Unusable, find_host_compiler, find_nvcc, probe_nvcc
from boltgen.build.unit import fatbin_unit
from boltgen.errors import ToolchainError
from boltgen.installation import install_command
from boltgen.settings import Settings, settings_from
from tests.build.fakes import fake_toolchain, write_script, write_toolkit


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which `wheel/cu13`, `home` and `path/bin` are the three places."""
    monkeypatch.setattr(
        toolchain,
        "_wheel_toolkits",
        lambda: [top for top in [tmp_path / "wheel" / "cu13"] if top.is_dir()],
    )
    return tmp_path


def settings_for(places: Path) -> Settings:
    # /bin: the fakes are shell scripts; it comes last and holds no nvcc.
    path = f"{places / 'path' / 'bin'}:/bin"
    return settings_from({"CUDA_HOME": str(places / "home"), "PATH": path})


def test_wheel_then_cuda_home_then_path(places: Path) -> None:
    path = write_toolkit(places / "path")
    assert find_nvcc(settings_for(places)).path == path
    home = write_toolkit(places / "home")
    found = find_nvcc(settings_for(places))
    assert (found.path, found.origin) == (home, "CUDA_HOME")
    wheel = write_toolkit(places / "wheel" / "cu13")
    found = find_nvcc(settings_for(places))
    assert (found.path, found.origin) == (wheel, "PyPI wheel")
    assert found.version_text == "13.0.88"
    assert found.runtime == places / "wheel" / "cu13" / "lib" / "libcudart.so.13"
    assert found.note == ""


def test_an_unusable_nvcc_is_passed_over(places: Path) -> None:
    write_toolkit(places / "wheel" / "cu13", version="11.8.89")
    home = write_toolkit(places / "home", version="12.9.41")
    found = find_nvcc(settings_for(places))
    assert found.path == home
    assert found.note == "boltgen is tested with nvcc 13.0"


def test_nvcc_missing_everywhere(places: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_nvcc(settings_for(places))
    message = str(caught.value)
    assert "PyPI wheel: the wheel nvidia-cuda-nvcc is not installed" in message
    assert f"CUDA_HOME: {places / 'home' / 'bin' / 'nvcc'}: no nvcc there" in message
    assert "PATH: no nvcc in its folders" in message
    assert f"`{install_command()}` brings nvcc 13.0" in message


def test_cuda_home_not_set(places: Path) -> None:
    with pytest.raises(ToolchainError, match="CUDA_HOME: not set"):
        find_nvcc(settings_from({"PATH": str(places)}))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("11.8.89", "too old: version 11.8.89; boltgen needs 12.4 or newer"),
        ("14.0.1", "too new: version 14.0.1; boltgen knows releases before 14.0"),
    ],
)
def test_versions_that_are_refused(places: Path, version: str, said: str) -> None:
    write_toolkit(places / "home", version=version)
    with pytest.raises(ToolchainError, match=said):
        find_nvcc(settings_for(places))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo oops; exit 1", "broken: `--version` ends with status 1: oops"),
        ("echo hello", "broken: `--version` says 'hello', which names no version"),
        ("kill -9 $$", "broken: `--version` ends with status -9"),
    ],
)
def test_an_nvcc_that_is_broken(places: Path, body: str, said: str) -> None:
    path = write_script(places / "home" / "bin" / "nvcc", body)
    found = probe_nvcc(path, "here", {})
    assert isinstance(found, Unusable)
    assert said in found.reason


def test_an_nvcc_that_may_not_be_executed(places: Path) -> None:
    path = write_toolkit(places / "home")
    path.chmod(0o644)
    found = probe_nvcc(path, "here", {})
    assert isinstance(found, Unusable)
    assert found.reason == "broken: cannot be started (Permission denied)"


@pytest.mark.parametrize(
    ("missing", "wheel"),
    [
        ("include/cuda_runtime.h", "nvidia-cuda-runtime"),
        ("lib/libcudart.so.13", "nvidia-cuda-runtime"),
        ("include/crt/host_config.h", "nvidia-cuda-crt"),
        ("nvvm/bin/cicc", "nvidia-nvvm"),
    ],
)
def test_a_toolkit_with_a_part_missing_names_its_wheel(
    places: Path, missing: str, wheel: str
) -> None:
    path = write_toolkit(places / "home")
    (places / "home" / missing).unlink()
    found = probe_nvcc(path, "here", {})
    assert isinstance(found, Unusable)
    assert "incomplete" in found.reason
    assert wheel in found.reason


def test_the_installed_toolchain_is_usable() -> None:
    found = toolchain.find_toolchain(settings_from())
    assert isinstance(found.nvcc, Nvcc)
    assert (found.cutlass.include / "cutlass" / "cutlass.h").is_file()
    assert (found.tvm_ffi.include / "tvm" / "ffi" / "c_api.h").is_file()
    assert found.nvcc.version_text in found.cuda_identity
    assert found.cutlass.version in found.cuda_identity


def test_identity_changes_with_every_part() -> None:
    found = toolchain.find_toolchain(settings_from())
    other = dataclasses.replace
    variants = [
        found,
        other(found, nvcc=other(found.nvcc, version=(13, 0, 89))),
        other(found, cxx=other(found.cxx, version="g++ 99")),
        other(found, cutlass=other(found.cutlass, version="4.3.0")),
    ]
    assert len({variant.cuda_identity for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    ("arch", "first"),
    [("sm_100", "12.8"), ("sm_103", "12.9"), ("sm_120", "12.8"), ("sm_121", "12.9")],
)
def test_an_nvcc_that_is_too_old_for_an_arch_is_refused_before_it_is_started(
    tmp_path: Path, arch: str, first: str
) -> None:
    tools = fake_toolchain(tmp_path)
    old = replace(tools, nvcc=replace(tools.nvcc, version=(12, 4, 131)))
    assert fatbin_unit("k", "", arch, tools).name == "k"
    with pytest.raises(ToolchainError, match=f"12.4.131, and {arch} needs {first} or newer"):
        fatbin_unit("k", "", arch, old)
    assert fatbin_unit("k", "", "sm_90a", old).name == "k"
    # One that only nvcc knows is nvcc's to refuse.
    assert fatbin_unit("k", "", "sm_110", old).name == "k"


def test_the_profiler_is_built_for_what_nvcc_knows(tmp_path: Path) -> None:
    tools = fake_toolchain(tmp_path)
    for version, known in (((12, 4, 131), 5), ((12, 8, 61), 7), ((13, 0, 88), 9)):
        compiling, _ = _commands(replace(tools, nvcc=replace(tools.nvcc, version=version)), None)
        assert compiling.count("-gencode") == known


def test_without_a_host_compiler_nvcc_is_not_blamed(places: Path) -> None:
    body = "echo gcc: No such file or directory; exit 1"
    write_script(places / "wheel" / "cu13" / "bin" / "nvcc", body)
    settings = settings_from({"PATH": str(places), "CXX": "g++"})
    with pytest.raises(ToolchainError, match=r"no host compiler: 'g\+\+'.*apt install g\+\+"):
        find_nvcc(settings)


def test_nvcc_is_asked_with_the_compiler_that_is_used(places: Path) -> None:
    compiler = write_script(places / "path" / "bin" / "my-g++", "echo my-g++ 14")
    nvcc = write_toolkit(places / "home")
    text = nvcc.read_text()
    nvcc.write_text(text.replace("#!/bin/sh\n", f'#!/bin/sh\necho "$@" >> {places}/asked\n'))
    settings = settings_from(
        {"CUDA_HOME": str(places / "home"), "PATH": f"{compiler.parent}:/bin", "CXX": "my-g++"}
    )
    assert find_nvcc(settings).path == nvcc
    assert f"-ccbin {compiler}" in (places / "asked").read_text()


def test_no_host_compiler(places: Path) -> None:
    with pytest.raises(ToolchainError, match=r"'g\+\+' is not on PATH.*apt install g\+\+"):
        find_host_compiler(settings_from({"PATH": str(places)}))


def test_a_host_compiler_that_is_broken(places: Path) -> None:
    write_script(places / "cxx", "exit 4")
    with pytest.raises(ToolchainError, match=r"cxx is broken: .*status 4.*set CXX"):
        find_host_compiler(settings_from({"PATH": f"{places}:/bin", "CXX": "cxx"}))


def test_no_cutlass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_package_folder", lambda name: None)
    with pytest.raises(ToolchainError, match=r"pip install nvidia-cutlass==4\.2\.0\.0"):
        toolchain.find_cutlass()
    with pytest.raises(ToolchainError, match="pip install apache-tvm-ffi"):
        toolchain.find_tvm_ffi()
