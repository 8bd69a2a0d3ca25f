"""Runs a library that TVM exported, on any Python: TVM's own package is built for one version.

Through the stable C interface of TVM's FFI, with ctypes; only TVM's runtime libraries are needed,
and numpy.
Source: tvm/ffi/c_api.h, tvm/ffi/extra/c_env_api.h and dlpack/dlpack.h of apache-tvm-ffi 0.1.15;
the functions of TVM's virtual machine are those that tvm/runtime/vm.py of apache-tvm 0.27 calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# In the order in which they are loaded: each needs those before it, and libcudart.so.13.
LIBRARIES = ("libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_cuda.so")

# TVMFFITypeIndex.
_NONE, _INT, _BOOL, _TENSOR_VIEW, _TEXT = 0, 1, 2, 7, 8
_OBJECTS, _TENSOR = 64, 70
# DLDeviceType, DLDataTypeCode; the allocator that vm.py calls "pooled".
_CPU, _CUDA, _FLOAT, _POOLED = 1, 2, 2, 2

Array: TypeAlias = NDArray[Any]


class TvmError(Exception):
    """TVM refused a call, or failed at it; the message is TVM's."""


class _Bytes(ctypes.Structure):
    """`TVMFFIByteArray`."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Any(ctypes.Structure):
    """`TVMFFIAny`: `value` is an integer, or the address of something."""

    _fields_ = (
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_int64),
    )


class _Object(ctypes.Structure):
    """`TVMFFIObject`, with which every object begins."""

    _fields_ = (
        ("reference_count", ctypes.c_uint64),
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("deleter", ctypes.c_void_p),
    )


class _ErrorCell(ctypes.Structure):
    """The head of `TVMFFIErrorCell`, behind an error's `_Object`."""

    _fields_ = (("kind", _Bytes), ("message", _Bytes))


class _Tensor(ctypes.Structure):
    """`DLTensor`, also behind a tensor's `_Object`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor in the device's memory, compact; valid until its model runs again."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size_bytes(self) -> int:
        """Of all elements."""
        return prod(self.shape) * self.dtype.itemsize


class _Handle:
    """An object of TVM's that this one owns."""

    def __init__(self, runtime: TvmRuntime, address: int) -> None:
        self._runtime, self.address = runtime, address

    def __del__(self) -> None:
        self._runtime.release(self.address)


class _Function(_Handle):
    """A function of TVM's."""

    def __call__(self, *arguments: object) -> Any:
        """Call it with integers, texts, handles, arrays and None.

        Raises:
            TvmError: it fails.
        """
        return self._runtime.call(self.address, arguments)


class TvmRuntime:
    """TVM's runtime from `libraries`, those of `LIBRARIES` in that order, in this process.

    CUDA's driver and runtime must be in the process, or be found by the linker.

    Raises:
        TvmError: a library is missing or cannot be loaded.
    """

    def __init__(self, libraries: Sequence[Path]) -> None:
        self._ffi, *_ = [_loaded(path) for path in libraries]
        self._ffi.TVMFFIObjectDecRef.argtypes = (ctypes.c_void_p,)
        self._ffi.TVMFFIFunctionCall.argtypes = (
            ctypes.c_void_p,
            ctypes.POINTER(_Any),
            ctypes.c_int32,
            ctypes.POINTER(_Any),
        )
        self.load_module = self.function("ffi.ModuleLoadFromFile")
        self.module_function = self.function("ffi.ModuleGetFunction")

    def function(self, name: str) -> _Function:
        """A global function.

        Raises:
            TvmError: there is none of that name.
        """
        found = ctypes.c_void_p()
        text = name.encode()
        wanted = _Bytes(text, len(text))
        self._checked(self._ffi.TVMFFIFunctionGetGlobal(ctypes.byref(wanted), ctypes.byref(found)))
        if not found.value:
            raise TvmError(f"TVM's runtime has no function {name}: its libraries do not fit")
        return _Function(self, found.value)

    def use_stream(self, stream: int) -> None:
        """Let whatever this thread launches on device 0 go to that CUDA stream."""
        handle = ctypes.c_void_p(stream)
        self._checked(self._ffi.TVMFFIEnvSetStream(_CUDA, 0, handle, None))

    def call(self, function: int, arguments: Sequence[object]) -> Any:
        """Call the function at that address; see `_Function`."""
        kept: list[object] = []
        packed = (_Any * max(len(arguments), 1))(*(_packed(one, kept) for one in arguments))
        result = _Any()
        self._checked(
            self._ffi.TVMFFIFunctionCall(function, packed, len(arguments), ctypes.byref(result))
        )
        return self._unpacked(result)

    def _unpacked(self, value: _Any) -> Any:
        if value.type_index in (_INT, _BOOL):
            return int(value.value)
        if value.type_index >= _OBJECTS:
            return _Function(self, value.value)
        return None

    def release(self, address: int) -> None:
        """Give an object back."""
        self._ffi.TVMFFIObjectDecRef(address)

    def _checked(self, status: int) -> None:
        """Raises TvmError where `status` says that the last call failed."""
        if not status:
            return
        error = ctypes.c_void_p()
        self._ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        if not error.value:
            raise TvmError(f"TVM failed with status {status}, and said nothing")
        cell = _ErrorCell.from_address(error.value + ctypes.sizeof(_Object))
        kind, message = (
            ctypes.string_at(part.data, part.size).decode(errors="replace")
            for part in (cell.kind, cell.message)
        )
        self.release(error.value)
        raise TvmError(f"{kind}: {message}")


class TvmModel:
    """A library of a Relax model, with its weights on device 0.

    Raises:
        TvmError: the library is none that TVM can load, or has no virtual machine's code.
    """

    def __init__(self, runtime: TvmRuntime, library: Path, entry: str = "main") -> None:
        self._runtime, self._entry = runtime, entry
        module = runtime.load_module(str(library))
        load = runtime.module_function(module, "vm_load_executable", 1)
        if load is None:
            raise TvmError(f"{library} has no code for TVM's virtual machine")
        machine = load()
        names = ("vm_initialization", "set_input", "invoke_stateful", "get_output")
        functions = {name: runtime.module_function(machine, name, 1) for name in names}
        self._set_input = functions["set_input"]
        self._invoke = functions["invoke_stateful"]
        self._get_output = functions["get_output"]
        self._get_arity = runtime.module_function(machine, "get_output_arity", 1)
        functions["vm_initialization"](_CUDA, 0, _POOLED, _CPU, 0, _POOLED)

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copy the inputs, in the model's order, to the device.

        Raises:
            TvmError: a shape or dtype is not what the model takes.
        """
        self._set_input(self._entry, *(np.ascontiguousarray(array) for array in arrays))

    def run(self) -> None:
        """Launch everything, on the stream of `TvmRuntime.use_stream`; nothing waits for it.

        Raises:
            TvmError: a call fails.
        """
        self._invoke(self._entry)

    def outputs(self) -> list[DeviceTensor]:
        """What the last run writes; the tensors are the model's."""
        arity = self._get_arity(self._entry)
        places: Sequence[tuple[int, ...]] = [()] if arity < 0 else [(i,) for i in range(arity)]
        return [_device_tensor(self._get_output(self._entry, *place)) for place in places]


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise TvmError(f"TVM's runtime cannot be loaded: {error}") from error


def _packed(value: object, kept: list[object]) -> _Any:
    """An argument; `kept` is what must live until the call has returned."""
    kept.append(value)
    if value is None:
        return _Any(_NONE, 0, 0)
    if isinstance(value, int):
        return _Any(_INT, 0, value)
    if isinstance(value, _Handle):
        return _Any(_Object.from_address(value.address).type_index, 0, value.address)
    if isinstance(value, str):
        text = ctypes.c_char_p(value.encode())
        kept.append(text)
        return _Any(_TEXT, 0, ctypes.cast(text, ctypes.c_void_p).value or 0)
    if isinstance(value, np.ndarray):
        view = _view(value)
        kept.append(view)
        return _Any(_TENSOR_VIEW, 0, ctypes.addressof(view))
    raise TypeError(f"a {type(value).__name__} is no argument of TVM's functions here")


def _view(array: Array) -> _Tensor:
    """An array of floats, where it is."""
    if array.dtype.kind != "f":
        raise TypeError(f"inputs of models here are floats, not {array.dtype}")
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    return _Tensor(
        data=array.ctypes.data,
        device_type=_CPU,
        ndim=array.ndim,
        type_code=_FLOAT,
        type_bits=8 * array.dtype.itemsize,
        type_lanes=1,
        shape=shape,
    )


def _device_tensor(handle: _Handle) -> DeviceTensor:
    if _Object.from_address(handle.address).type_index != _TENSOR:
        raise TvmError("an output is no tensor")
    tensor = _Tensor.from_address(handle.address + ctypes.sizeof(_Object))
    if tensor.device_type != _CUDA or tensor.type_code != _FLOAT:
        raise TvmError(
            f"an output of type {tensor.type_code} lies on a device of type {tensor.device_type}: "
            "floats on a GPU are known here"
        )
    return DeviceTensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[: tensor.ndim]),
        dtype=np.dtype(f"f{tensor.type_bits // 8}"),
    )
