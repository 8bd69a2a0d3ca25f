"""Making an environment with Relay; `make relay-env` is the real run of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from boltgen.build import relay_env
from boltgen.build.relay_env import make_relay_environment, unpack_tvm
from boltgen.errors import ToolchainError

BASE = "bitblas/3rdparty/tvm"


def wheel(folder: Path, *members: str) -> Path:
    path = folder / "bitblas-0.1.0.post1-py3-none-manylinux1_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, member)
    return path


def test_only_tvm_is_taken_out_of_the_wheel(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    (packages / "tvm" / "stale").mkdir(parents=True)
    members = (
        f"{BASE}/python/tvm/__init__.py",
        f"{BASE}/python/tvm/relay/__init__.py",
        f"{BASE}/build/libtvm.so",
        f"{BASE}/build/config.cmake",
        f"{BASE}/python/setup.py",
        "bitblas/__init__.py",
    )
    unpack_tvm(wheel(tmp_path, *members), packages)
    found = {str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()}
    assert found == {"tvm/__init__.py", "tvm/relay/__init__.py", "tvm/libtvm.so"}


def test_a_wheel_without_tvm(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    with pytest.raises(ToolchainError, match="has no TVM with Relay in it"):
        unpack_tvm(wheel(tmp_path, "bitblas/__init__.py"), tmp_path / "site-packages")
    assert not list((tmp_path / "site-packages").iterdir())


def _python(folder: Path, script: str) -> Path:
    """A program in the place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["thesis.txt", "pyvenv.cfg"])
def test_a_folder_that_boltgen_did_not_make_stays_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("own")
    with pytest.raises(ToolchainError, match="`boltgen setup-relay` did not make it"):
        make_relay_environment(tmp_path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["own"]


def test_an_environment_of_boltgens_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / ".made-by-boltgen").touch()
    with pytest.raises(ToolchainError, match="cannot ask for its version"):
        make_relay_environment(tmp_path, python=tmp_path / "python")


@pytest.mark.parametrize("place", ["file", "file/env"])
def test_a_file_in_the_way_stays_as_it_is(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("own")
    with pytest.raises(ToolchainError, match=r"file\S* is no folder\. Give a new folder"):
        make_relay_environment(tmp_path / place, python=_python(tmp_path, "echo 3.11"))
    assert (tmp_path / "file").read_text() == "own"


def test_an_environment_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    python = _python(tmp_path, 'case "$*" in *venv*) touch "$3/half"; exit 1;; *) echo 3.11;; esac')
    for _ in range(2):
        with pytest.raises(ToolchainError, match="cannot make a virtual environment"):
            make_relay_environment(tmp_path / "env", python=python)
    assert (tmp_path / "env" / "half").exists()


def test_a_python_that_is_too_new(tmp_path: Path) -> None:
    python = _python(tmp_path, "echo 3.14")
    with pytest.raises(
        ToolchainError, match=r"is Python 3\.14; .* Python up to 3\.12: give one with --python"
    ):
        make_relay_environment(tmp_path / "env", python=python)


def test_a_python_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"cannot ask for its version: .*No such file"):
        make_relay_environment(tmp_path / "env", python=tmp_path / "python")


def test_a_step_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"cannot fetch TVM: `false` ends with status 1"):
        relay_env._run(["false"], "fetch TVM")


def test_requirements_are_pinned() -> None:
    assert all("==" in requirement for requirement in relay_env.REQUIREMENTS)
