"""Runs a library that TVM exported where TVM is not installed, but its runtime and FFI are packed.

Source: the functions of TVM's virtual machine are those that tvm/runtime/vm.py of 0.27 calls.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# TVM's runtime, in the order in which it is loaded, after the package `tvm_ffi`.
LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so")
# DLDeviceType; the allocator that vm.py calls "pooled".
_CPU, _CUDA, _POOLED = 1, 2, 2


@cache
def _runtime(folder: Path) -> Any:
    """Load TVM's runtime from `folder` into this process; TVM's FFI."""
    # Else it compiles an extension of PyTorch's, or imports PyTorch's of another build.
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    import tvm_ffi  # noqa: PLC0415 (it lies in the bundle, and wants CUDA's libraries loaded)

    for name in LIBRARIES:
        ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    return tvm_ffi


class TvmModel:
    """A library of a Relax model, with its weights on device 0, which launches on `stream`.

    Raises:
        Exception: TVM's, where the library is none of a model's.
    """

    def __init__(self, folder: Path, library: str, x: NDArray[Any], stream: int) -> None:
        self._ffi, self._stream = _runtime(folder), stream
        executable = self._ffi.load_module(library)
        self._machine = executable.get_function("vm_load_executable", query_imports=True)()
        self._machine["vm_initialization"](_CUDA, 0, _POOLED, _CPU, 0, _POOLED)
        self._machine["set_input"]("main", self._ffi.from_dlpack(np.ascontiguousarray(x)))
        self._invoke = self._machine["invoke_stateful"]

    def run(self) -> None:
        """Launch everything; nothing waits for it."""
        with self._ffi.use_raw_stream(self._ffi.device("cuda", 0), self._stream):
            self._invoke("main")

    def output(self) -> tuple[int, tuple[int, ...], str]:
        """Find what the last run writes: address, shape and dtype; valid until the next run."""
        arity = self._machine["get_output_arity"]("main")
        if arity > 1:
            raise ValueError(f"models here have one output, not {arity}")
        tensor = self._machine["get_output"]("main", *range(max(arity, 0)))
        return tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype)
