"""Compile TVM's generated CUDA with boltgen's nvcc, through the cache, to SASS and PTX.

TVM's own callback makes a binary for one device only, or fails on a machine without a CUDA toolkit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompiledObject, fatbin_unit

# The global function that every version of TVM calls with CUDA source.
CALLBACK = "tvm_callback_cuda_compile"

# Prefix of the device functions that TVM's kernels call; see `special_values`.
DEVICE_PREFIX = "boltgen_"
_FUNCTIONS = """\
// NaN in x fails the comparison and is returned by the first test; NaN in y is the other branch.
template <typename T>
static __forceinline__ __device__ T boltgen_maximum(T x, T y) {
  return (x != x || x > y) ? x : y;
}

template <typename T>
static __forceinline__ __device__ T boltgen_minimum(T x, T y) {
  return (x != x || x < y) ? x : y;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// One instruction each. Source: PTX ISA, "max": with .NaN the result is NaN if an operand is.
static __forceinline__ __device__ float boltgen_maximum(float x, float y) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}

static __forceinline__ __device__ float boltgen_minimum(float x, float y) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}
#endif

"""
_HALF = """\
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __forceinline__ __device__ __half boltgen_maximum(__half x, __half y) {
  return __hmax_nan(x, y);
}

static __forceinline__ __device__ __half boltgen_minimum(__half x, __half y) {
  return __hmin_nan(x, y);
}
#endif

"""
_HALF_HEADER = "cuda_fp16.h"


def _with_functions(text: str) -> str:
    """Return `text` after the definitions of the functions that it calls."""
    names = (f"{DEVICE_PREFIX}{name}(" for name in ("maximum", "minimum"))
    if not any(name in text for name in names):
        return text
    return _FUNCTIONS + (_HALF if _HALF_HEADER in text else "") + text


def compile_cuda(text: str, arch: str, tools: Toolchain, cache: Cache) -> CompiledObject:
    """Compile TVM's generated CUDA to a fat binary.

    Raises:
        CompileError: nvcc rejects the text.
    """
    unit = fatbin_unit("tvm_kernels", _with_functions(text), arch, tools)
    (compiled,) = objects_or_raise(compile_all([unit], cache, jobs=1))
    return compiled


class CudaCompiler:
    """Compile TVM's generated CUDA for `arch`, and record the files of the sources."""

    def __init__(self, arch: Arch, tools: Toolchain, cache: Cache) -> None:
        self._arch, self._tools, self._cache = arch, tools, cache
        self._failures: list[Exception] = []
        self.sources: list[Path] = []

    def compile(self, text: str) -> bytes:
        """Return the fat binary's bytes."""
        try:
            compiled = compile_cuda(text, self._arch.name, self._tools, self._cache)
        except Exception as error:
            self._failures.append(error)  # TVM's FFI keeps only the exception's message
            raise
        self.sources.append(compiled.source)
        return compiled.path.read_bytes()

    @contextmanager
    def installed(
        self, callback: Any, get: Callable[..., Any], register: Callable[..., Any]
    ) -> Iterator[None]:
        """Replace TVM's callback by `callback` during the block; `get` and `register` are TVM's.

        Raises:
            CompileError: the callback failed; this error replaces TVM's exception.
        """
        previous = get(CALLBACK, allow_missing=True)
        register(CALLBACK, callback, override=True)
        try:
            yield
        except Exception:
            if self._failures:
                raise self._failures[0] from None
            raise
        finally:
            if previous is not None:
                register(CALLBACK, previous, override=True)
