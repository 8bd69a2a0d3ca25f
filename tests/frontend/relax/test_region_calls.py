"""Regions' calls in TVM's byte code and machine code, with C++ doubles for the kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from benchmarks.cases.relax_modules import build
from boltgen.frontend.relax import annotate, attach
from boltgen.passes.run import Passes

op = relax.op
EYE = np.eye(8, dtype=np.float16)

# Products of matrices; the second one has a workspace, every byte of which it writes.
_SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <cstring>
using tvm::ffi::TensorView;
static _Float16* data(TensorView const& view) {
  return reinterpret_cast<_Float16*>(static_cast<char*>(view.data_ptr()) + view.byte_offset());
}
static void multiply(TensorView a, TensorView b, TensorView d) {
  if (a.strides()[0] != a.size(1)) TVM_FFI_THROW(ValueError) << "strides of A";
  for (int64_t i = 0; i < d.size(0); ++i)
    for (int64_t j = 0; j < d.size(1); ++j) {
      float sum = 0;
      for (int64_t k = 0; k < a.size(1); ++k)
        sum += data(a)[i * a.size(1) + k] * data(b)[k * d.size(1) + j];
      data(d)[i * d.size(1) + j] = sum;
    }
}
static void with_workspace(TensorView a, TensorView b, TensorView d, TensorView workspace) {
  if (workspace.numel() != 512) TVM_FFI_THROW(ValueError) << "size of the workspace";
  std::memset(workspace.data_ptr(), 255, 512);
  multiply(a, b, d);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(boltgen_0_matmul, multiply);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(boltgen_1_matmul, with_workspace);
"""
MODES = pytest.mark.parametrize("mode", ["bytecode", "compiled"])


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.cc").write_text(_SOURCE)
    includes = [
        f"-I{tvm_ffi.libinfo.find_include_path()}",
        f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}",
    ]
    command = ["g++", "-std=c++17", "-fPIC", *includes, "-c", "kernels.cc", "-o", "kernels.o"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "kernels.o"


@I.ir_module
class Calls:
    """A function that `main` calls twice, and a product behind a symbolic dimension."""

    @R.function
    def layer(x: R.Tensor((8, 8), "float16"), w: R.Tensor((8, 8), "float16")) -> R.Tensor(
        (8, 8), "float16"
    ):
        return R.matmul(x, w)

    @R.function
    def main(
        x: R.Tensor((8, 8), "float16"),
        w: R.Tensor((8, 8), "float16"),
        rest: R.Tensor(("n",), "float16"),
    ):
        cls = Calls
        y = cls.layer(x, w)
        z = R.sin(R.permute_dims(R.matmul(cls.layer(y, w), w)))
        return (z, R.add(rest, rest))


@MODES
def test_regions_are_called_from_every_function(kernels: Path, mode: str) -> None:
    annotated = annotate(Calls, passes=Passes(normalise=False))
    symbols = ["boltgen_0_matmul", "boltgen_1_matmul"]
    assert sorted(region.symbol for region in annotated.regions) == symbols
    module = attach(annotated, [kernels], symbols, {"boltgen_1_matmul": 512})
    machine = relax.VirtualMachine(relax.build(module, "llvm", exec_mode=mode), tvm.cpu())
    x = np.arange(128, dtype=np.float16).reshape(16, 8) / 128
    given = tvm.runtime.tensor(x)._create_view((8, 8), "float16", relative_byte_offset=64)
    half = tvm.runtime.tensor(EYE / 2)
    for n in (3, 5):
        rest = tvm.runtime.tensor(np.ones(n, np.float16))
        made, doubled = machine["main"](given, half, rest)
        expected = np.sin((x[4:12] / 8).T.astype(np.float64))
        # The sine is rounded once, to a number below 1.
        np.testing.assert_allclose(made.numpy(), expected, rtol=0, atol=2.0**-11)
        np.testing.assert_array_equal(doubled.numpy(), np.full(n, 2))


@MODES
def test_tvm_neither_folds_nor_fuses_a_region(kernels: Path, mode: str) -> None:
    weights = [relax.const(factor * EYE) for factor in (2, 3)]
    module = build(
        {"x": ((8, 8), "float16")},
        lambda x: op.add(op.sin(op.permute_dims(op.matmul(*weights))), x),
    )
    annotated = annotate(module, passes=Passes(normalise=False))
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with tvm.target.Target("llvm"):
        fused = tvm.transform.Sequential(passes)(
            attach(annotated, [kernels], ["boltgen_0_matmul"], {})
        )
    bindings = fused["main"].body.blocks[0].bindings
    called = [binding.value.args[0].name_hint for binding in bindings]
    assert called == ["call_boltgen_0_matmul", "fused_transpose_tir_sin_add"]
    machine = relax.VirtualMachine(relax.build(fused, "llvm", exec_mode=mode), tvm.cpu())
    made = machine["main"](tvm.runtime.tensor(0 * EYE)).numpy()
    np.testing.assert_allclose(made, np.sin(6.0) * EYE, rtol=0, atol=2.0**-11)
