"""TVM's C interface: what is refused, and what it says. Models are run in `test_suite`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.bundle import runtime_libraries
from benchmarks.gpu.tvm_runtime import LIBRARIES, TvmError, TvmModel, TvmRuntime
from boltgen.runtime.device import activate


@pytest.fixture(scope="module")
def runtime() -> TvmRuntime:
    activate("vgpu")
    return TvmRuntime(runtime_libraries())


def test_a_library_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(TvmError, match=LIBRARIES[0]):
        TvmRuntime([tmp_path / name for name in LIBRARIES])


def test_a_function_that_is_not_there_is_named(runtime: TvmRuntime):
    with pytest.raises(TvmError, match=r"no function boltgen\.none"):
        runtime.function("boltgen.none")


def test_what_tvm_says_of_a_failure_is_told(runtime: TvmRuntime, tmp_path: Path):
    with pytest.raises(TvmError, match=r"none\.so"):
        TvmModel(runtime, tmp_path / "none.so")


def test_a_module_that_is_no_model_is_named(runtime: TvmRuntime):
    """Any shared library is a module of TVM's."""
    spec = importlib.util.find_spec("numpy._core._multiarray_umath")
    assert spec is not None
    with pytest.raises(TvmError, match="no code for TVM's virtual machine"):
        TvmModel(runtime, Path(str(spec.origin)))


def test_values_that_no_model_takes_are_refused(runtime: TvmRuntime):
    with pytest.raises(TypeError, match="floats, not int64"):
        runtime.load_module(np.zeros(3, np.int64))
    with pytest.raises(TypeError, match="a dict is no argument"):
        runtime.load_module({})
