"""When a whole compilation may be taken from the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boltgen.arch import ARCHES
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.codegen.nvcc import DeviceCode
from boltgen.options import CompileOptions
from boltgen.settings import settings_from
from boltgen.tvm_build import model_key as module
from boltgen.tvm_build.model_key import model_key

SM80 = ARCHES["sm_80"]


def options(**given: Any) -> CompileOptions:
    return CompileOptions(**{"frontend": "relax", **given})


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    return find_toolchain(settings_from())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(b"model")
    return tmp_path / "model.onnx"


def test_equal_compilations_have_one_key(tools: Toolchain, path: Path) -> None:
    key = model_key(path, SM80, options(shapes={"x": (1, 2)}), tools)
    assert key is not None
    assert key == model_key(str(path), SM80, options(shapes={"x": (1, 2)}), tools)


def test_the_key_changes_with_everything_that_matters(
    tools: Toolchain, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        model_key(path, SM80, options(), tools),
        model_key(path, SM80, options(shapes={"x": (1,)}), tools),
        model_key(path, ARCHES["sm_86"], options(), tools),
        model_key(path, SM80, options(accumulate="float16"), tools),
        model_key(path, SM80, options(fuse=False), tools),
        model_key(path, SM80, options(pad=False), tools),
        model_key(path, SM80, options(io="half"), tools),
        *(
            model_key(path, SM80, options(), replace(tools, device_code=code))
            for code in DeviceCode
            if code is not tools.device_code
        ),
        model_key(
            path, SM80, options(), replace(tools, cutlass=replace(tools.cutlass, version="9"))
        ),
        model_key(
            path, SM80, options(), replace(tools, nvcc=replace(tools.nvcc, version=(13, 1, 0)))
        ),
        model_key(
            path, SM80, options(), replace(tools, tvm_ffi=replace(tools.tvm_ffi, version="9"))
        ),
    ]
    monkeypatch.setattr(module, "relay_identity", lambda: "one build")
    keys.append(model_key(path, SM80, options(frontend="relay"), tools))
    monkeypatch.setattr(module, "relay_identity", lambda: "another")
    keys.append(model_key(path, SM80, options(frontend="relay"), tools))
    path.write_bytes(b"Model")
    keys.append(model_key(path, SM80, options(), tools))
    monkeypatch.setattr(module, "own_code", lambda: "changed")
    keys.append(model_key(path, SM80, options(), tools))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_a_tvm_whose_library_is_not_found_has_no_key(
    tools: Toolchain, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "relay_identity", lambda: None)
    assert model_key(path, SM80, options(frontend="relay"), tools) is None


def test_weights_in_another_file_have_no_key(tools: Toolchain, path: Path) -> None:
    path.write_bytes(b"...location\x12\x0bweights.bin...")
    assert model_key(path, SM80, options(), tools) is None


def test_models_that_are_no_onnx_file_have_no_key(tools: Toolchain, tmp_path: Path) -> None:
    assert model_key(object(), SM80, options(), tools) is None
    assert model_key(tmp_path / "absent.onnx", SM80, options(), tools) is None
    assert model_key(tmp_path / "program.pt2", SM80, options(), tools) is None
