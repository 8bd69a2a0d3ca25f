"""Which TVM is installed, and what is said of the wrong one."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

from boltgen.errors import ToolchainError
from boltgen.frontend.attributes import integers
from boltgen.frontend.relay import versions
from boltgen.frontend.relay.versions import (
    cuda_compile_callback,
    function_attribute,
    installed_tvm,
    require_relax,
    require_relay,
)


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str | None) -> None:
    """Let the installed TVM be one of `version`, as its code up to 0.19 tells it."""
    spec = None
    if version is not None:
        spec = ModuleSpec("tvm", None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        (folder / "_ffi").mkdir()
        (folder / "_ffi" / "libinfo.py").write_text(f'__version__ = "{version}"\n')
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


@pytest.mark.parametrize("version", ["0.14.0", "0.16.0", "0.17.dev0", "0.18.dev12+g1234", "0.19.0"])
def test_supported_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    pretend(monkeypatch, tmp_path, version)
    assert require_relay().version == version
    with pytest.raises(ToolchainError, match=r"the Relax frontend needs TVM 0\.25 or newer"):
        require_relax()


def test_a_version_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, "0.13.0")
    with pytest.raises(
        ToolchainError, match=r"needs a TVM from 0\.14 to 0\.19; TVM 0\.13\.0 in .* not supported"
    ):
        require_relay()


def test_a_version_without_relay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, "0.20.0")
    with pytest.raises(
        ToolchainError, match=r"TVM 0\.20\.0 in .* has no Relay: .*`boltgen setup-relay DIR`"
    ):
        require_relay()


def test_no_tvm_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, None)
    assert installed_tvm() is None
    with pytest.raises(ToolchainError, match=r"none is installed: .*boltgen setup-relay DIR"):
        require_relay()
    with pytest.raises(ToolchainError, match=r"TVM is not installed: .*pip install .*\[relax\]"):
        require_relax()


def test_relax_alone_is_told_what_to_do() -> None:
    """This environment has the TVM of PyPI, which has Relax only."""
    found = installed_tvm()
    assert found is not None
    assert (found.has_relax, found.has_relay) == (True, False)
    with pytest.raises(ToolchainError, match=r"has no Relay: .*`boltgen setup-relay DIR`"):
        importlib.import_module("boltgen.relay")


def test_the_range_is_the_one_that_is_stated() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "relay.md"
    assert (versions.OLDEST, versions.NEWEST, versions.TESTED) == ((0, 14), (0, 19), (0, 17))
    assert "TVM 0.14 to 0.19; it is tested with 0.17" in page.read_text(encoding="utf-8")


def test_the_callback_takes_what_each_version_passes() -> None:
    heard = []

    def compile_text(code: str, target: object) -> bytes:
        heard.append((code, target))
        return b"fatbin"

    callback = cuda_compile_callback(compile_text)
    assert callback("a") == bytearray(b"fatbin")
    assert callback("b", "cuda") == bytearray(b"fatbin")
    assert heard == [("a", None), ("b", "cuda")]


class IntImm:
    """What containers of integers hold until 0.17."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


@pytest.mark.parametrize("kind", [IntImm, int])
def test_integers_of_each_version(kind: type) -> None:
    assert integers(kind(3)) == (3,)
    assert integers([kind(1), kind(2)]) == (1, 2)


@pytest.mark.parametrize("none", [None, {}])
def test_attributes_of_each_version(none: object) -> None:
    assert function_attribute(SimpleNamespace(attrs=none), "Compiler") is None
    assert function_attribute(SimpleNamespace(attrs={"Compiler": "boltgen"}), "Compiler") == (
        "boltgen"
    )
    assert function_attribute(SimpleNamespace(attrs={"Compiler": "boltgen"}), "Inline") is None
    assert function_attribute(object(), "Compiler") is None
