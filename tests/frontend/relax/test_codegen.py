"""Kernels as TVM links them: real object files, and errors on the way."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import boltgen.relax
from benchmarks.cases.relax_modules import build
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import annotate, attach
from boltgen.problems.region import Region
from boltgen.tvm_build import relax_model

op = relax.op

# A double for the real kernel: it exports the region's symbol and fills the output with 42.
_SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
static void fill(tvm::ffi::TensorView, tvm::ffi::TensorView, tvm::ffi::TensorView out) {
  _Float16* data = static_cast<_Float16*>(out.data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) data[i] = 42;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(boltgen_0_matmul, fill);
"""
_EXTRA = 'extern "C" int boltgen_test_nothing() { return 0; }\n'


def _product() -> tvm.IRModule:
    return build({"x": ((4, 8), "float16"), "w": ((8, 16), "float16")}, op.matmul)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two object files, as a build gives an adapter and kernels."""
    folder = tmp_path_factory.mktemp("objects")
    compiler = shutil.which("g++")
    assert compiler, "g++ is required to build and test boltgen"
    paths = []
    for name, text in (("adapter", _SOURCE), ("kernel", _EXTRA)):
        source = folder / f"{name}.cc"
        source.write_text(text)
        includes = [
            f"-I{tvm_ffi.libinfo.find_include_path()}",
            f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
        ]
        target = folder / f"{name}.o"
        command = [compiler, "-std=c++17", "-fPIC", *includes, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        paths.append(target)
    return paths


def _run(module: tvm.IRModule, folder: Path) -> np.ndarray:
    compiled = tvm.compile(module, target="llvm")
    compiled.export_library(str(folder / "model.so"))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    x, w = np.ones((4, 8), np.float16), np.ones((8, 16), np.float16)
    return machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()


def test_attached_objects_are_linked_and_called(objects: list[Path], tmp_path: Path) -> None:
    annotated = annotate(_product())
    module = attach(annotated, objects, [region.symbol for region in annotated.regions], {})
    np.testing.assert_array_equal(_run(module, tmp_path), np.full((4, 16), 42, np.float16))


def test_partition_builds_what_the_pipeline_returns(
    objects: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[tuple[str, ...], str]] = []

    def build_regions(found: tuple[Region, ...], arch: str, options: object) -> SimpleNamespace:
        asked.append((tuple(region.symbol for region in found), arch))
        return SimpleNamespace(
            objects=tuple(objects), symbols=asked[-1][0], plan=SimpleNamespace(workspaces={})
        )

    monkeypatch.setattr(relax_model, "build_regions", build_regions)
    module = boltgen.relax.partition(_product(), arch="sm_86")
    assert asked == [(("boltgen_0_matmul",), "sm_86")]
    np.testing.assert_array_equal(_run(module, tmp_path), np.full((4, 16), 42, np.float16))


def test_a_failure_in_the_pipeline_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_regions(found: tuple[Region, ...], arch: str, options: object) -> None:
        raise ModelImportError(f"no kernel for {found[0].label} on {arch}")

    monkeypatch.setattr(relax_model, "build_regions", build_regions)
    with pytest.raises(ModelImportError, match=r"^no kernel for matmul on sm_80$"):
        relax_model.compile_regions(annotate(_product()), arch="sm_80")


def test_a_module_without_regions_needs_no_compiler() -> None:
    module = build({"x": ((4, 8), "float32")}, op.nn.relu)
    compiled = tvm.compile(boltgen.relax.partition(module), target="llvm")
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    actual = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(actual, np.maximum(x, 0), rtol=2**-11)
