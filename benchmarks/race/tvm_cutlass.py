"""TVM's generator of CUTLASS kernels, `tvm.contrib.cutlass`: its Python half needs no GPU.

The generator writes a kernel's type and the host code that calls it. TVM's compiler calls it by C++
code that the wheel does not contain (USE_CUTLASS is off), so that the race calls it itself, with
TVM's own attributes of a matmul. TVM sums in the type of the result. The errors of FP16 sums exceed
what the race allows (0.0022 to 0.0063, and 0.002 is allowed), so the race asks for FP32 sums, which
are the generator's default.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib.cutlass import gemm_operation, gen_gemm, gen_tensor_op

from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.cutlass import library
from benchmarks.race.machine import Machine
from benchmarks.race.problems import Matmul, Problem
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from

_ARCH = "sm_80"
_HALF = "float16"
# Tiles of its list, from the largest to the smallest; each takes nvcc a quarter of a minute.
_TILES = ("128x256_32x3", "128x128_32x4", "128x64_64x3", "64x64_64x5")
# Names that the host code takes from TVM's runtime.
_RUNTIME = """\
#include <cuda_runtime.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/util/device_memory.h>

struct Tensor {
  void* data;
  struct { int device_id; } device;
};
constexpr int kDLCUDA = 2;
static void* TVMFFIEnvGetStream(int, int) { return nullptr; }
#define TVM_FFI_ICHECK(condition) \\
  if (!(condition)) return 1

extern "C" int race(void* a_, void* b_, void* d_, int m, int n, int k) {
  Tensor a_of{a_, {0}}, b_of{b_, {0}}, d_of{d_, {0}};
  Tensor *a = &a_of, *b = &b_of, *out0 = &d_of;
"""


def _generated() -> dict[str, dict[str, Any]]:
    """Return the kernels that the generator lists for matmuls on sm_80, by tile."""
    operators = gen_tensor_op.generate_sm80_tensor_op_16816(
        _HALF,
        _HALF,
        _HALF,
        partial(gen_gemm.enumerate_gemm_operators),
        lambda alignment: alignment == 8,
    )
    # The names of kernels for sm_75 have another instruction.
    ampere = (each for each in operators if "s16816gemm" in each["name"])
    return {each["tile_description"].procedural_name(): each for each in ampere}


@dataclass
class TvmCutlassEntry:
    """A kernel of the generator."""

    tile: str
    problem: Matmul

    @property
    def label(self) -> str:
        """The tile."""
        return f"contrib.cutlass {self.tile}"

    @cached_property
    def _library(self) -> Path:
        operator = _generated()[self.tile]
        name, definition = gen_gemm.create_gemm_operator_with_epilogue(
            "cutlass.matmul_transposed",
            operator["tile_description"],
            operator["data_type"],
            operator["alignment"],
            operator["swizzle_functor"],
        )
        half = "cutlass::half_t"
        attributes = {
            "op_type": "cutlass.matmul_transposed",
            "cutlass_op_def": definition,
            "cutlass_op_name": name,
            **dict.fromkeys(("ElementInputA", "ElementInputB", "ElementOutput"), half),
            "M": "m",
            "N": "n",
            "K": "k",
            "lda": "k",
            "ldb": "k",
            "ldc": "n",
            "lhs_arg": "a",
            "rhs_arg": "b",
            "A_arg": "a",
        }
        body = gemm_operation.instantiate_gemm_template(attributes)
        return library("tvm_cutlass", f"{_RUNTIME}{body}\n  return 0;\n}}\n", _ARCH)

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Call the host code."""
        del machine  # it launches by the CUDA runtime
        pointers = [ctypes.c_void_p(each) for each in (*addresses.values(), output)]
        extents = (self.problem.m, self.problem.n, self.problem.k)
        numbers = [ctypes.c_int(each) for each in extents]
        if ctypes.CDLL(str(self._library)).race(*pointers, *numbers):
            raise CannotRunError("its host code refuses the problem")

    def compiled(self) -> Sequence[Compiled]:
        """List the PTX in the program."""
        ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
        return [Compiled(ptx=ptx, ptxas=ptxas) for ptx in embedded_ptx(self._library.read_bytes())]


class TvmCutlass:
    """TVM's CUTLASS BYOC, in the best of some of its tiles."""

    name = "TVM CUTLASS"
    version = tvm.__version__

    def entries(self, problem: Problem, arch: str) -> Sequence[TvmCutlassEntry]:
        """Return the kernels for a matmul on sm_80, the newest architecture that it knows."""
        if not isinstance(problem, Matmul) or arch != _ARCH:
            raise CannotRunError(f"tvm_cutlass.py has no program for {problem.name} on {arch}")
        return [TvmCutlassEntry(tile, problem) for tile in _TILES]
