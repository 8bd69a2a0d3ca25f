"""Which TVM compiled a model, where TVM is its user's own build."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from boltgen.tvm_build.relay_identity import relay_identity

# The rules by which TVM finds its library, shortened.
LIBINFO = """
__version__ = "0.17.0"
import os
def find_lib_path():
    here = os.path.dirname(os.path.dirname(__file__))
    return [p for p in [os.path.join(here, "libtvm.so")] if os.path.exists(p)]
"""


@pytest.fixture
def tvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tvm"
    (folder / "_ffi").mkdir(parents=True)
    (folder / "_ffi" / "libinfo.py").write_text(LIBINFO)
    (folder / "libtvm.so").write_bytes(b"library")
    spec = ModuleSpec("tvm", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: spec if name == "tvm" else found(name)
    )
    return folder


def test_it_changes_with_code_and_library(tvm: Path) -> None:
    states = [relay_identity()]
    assert states[0] == relay_identity()
    (tvm / "frontend.py").write_text("x = 1")
    states.append(relay_identity())
    os.utime(tvm / "libtvm.so", ns=(1, 1))
    states.append(relay_identity())
    (tvm / "_ffi" / "libinfo.py").write_text(LIBINFO.replace("0.17.0", "0.18.0"))
    states.append(relay_identity())
    assert None not in states
    assert len(set(states)) == len(states)


def test_without_a_library_there_is_none(tvm: Path) -> None:
    (tvm / "libtvm.so").unlink()
    assert relay_identity() is None


@pytest.mark.parametrize("rules", ["1 / 0", "def find_lib_path(name): ..."])
def test_with_rules_that_do_not_work_there_is_none(tvm: Path, rules: str) -> None:
    (tvm / "_ffi" / "libinfo.py").write_text(f'__version__ = "0.17.0"\n{rules}\n')
    assert relay_identity() is None
