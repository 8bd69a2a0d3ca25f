"""A thin client of the CUDA driver interface: PTX text in, arrays in and out."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.device.vgpu import Vgpu

Array = np.ndarray[Any, Any]

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


class CudaError(Exception):
    """A call of the driver that did not return success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Buffer:
    """Device memory that holds an array."""

    address: int
    like: Array


class Driver:
    """The CUDA driver of the virtual GPU in a folder, with the modules and buffers it has made."""

    def __init__(self, vgpu: Vgpu, folder: Path) -> None:
        self.vgpu = vgpu
        self._cuda = ctypes.CDLL(str(folder / "libcuda.so.1"))
        self._modules: list[ctypes.c_void_p] = []
        self._buffers: list[int] = []

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver; raise CudaError unless it returns success."""
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(code, (text.value or b"").decode(errors="replace"))

    def load(self, image: str | bytes) -> ctypes.c_void_p:
        """A module of PTX text (a header is put before it) or of an image's bytes."""
        if isinstance(image, str):
            image = (image if ".version" in image else HEADER + image).encode()
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self._modules.append(module)
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """Return a kernel of a module."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def buffer(self, array: Array) -> Buffer:
        """Return device memory that holds `array`."""
        array = np.ascontiguousarray(array)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self._buffers.append(address.value)
        size = ctypes.c_size_t(array.nbytes)
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), size)
        return Buffer(address.value, array)

    def allocate(self, nbytes: int) -> Buffer:
        """Device memory that nothing has written."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self._buffers.append(address.value)
        return Buffer(address.value, np.zeros(nbytes, np.uint8))

    def copy(self, to: Buffer, source: Buffer) -> None:
        """Copy device memory of the size of `to`."""
        size = ctypes.c_size_t(to.like.nbytes)
        places = (ctypes.c_uint64(to.address), ctypes.c_uint64(source.address))
        self.call("cuMemcpyDtoD_v2", *places, size)

    def fill(self, buffer: Buffer, value: int) -> None:
        """Set every byte of device memory."""
        size = ctypes.c_size_t(buffer.like.nbytes)
        self.call("cuMemsetD8_v2", ctypes.c_uint64(buffer.address), ctypes.c_ubyte(value), size)

    def free(self, buffer: Buffer) -> None:
        """Free device memory."""
        self._buffers.remove(buffer.address)
        self.call("cuMemFree_v2", ctypes.c_uint64(buffer.address))

    def read(self, buffer: Buffer) -> Array:
        """Return the array that device memory holds."""
        out = np.empty_like(buffer.like)
        size = ctypes.c_size_t(out.nbytes)
        source = ctypes.c_uint64(buffer.address)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), source, size)
        return out

    def launch(
        self,
        function: ctypes.c_void_p,
        arguments: list[Buffer | int],
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        shared: int = 0,
    ) -> None:
        """Launch and wait. A buffer is passed as its address, an int as 32 bits."""
        values: list[Any] = [
            ctypes.c_uint64(a.address) if isinstance(a, Buffer) else ctypes.c_uint32(a & 0xFFFFFFFF)
            for a in arguments
        ]
        pointers = (ctypes.c_void_p * max(len(values), 1))()
        for k, value in enumerate(values):
            pointers[k] = ctypes.addressof(value)
        self.call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
        self.call("cuCtxSynchronize")

    def run(
        self,
        ptx: str,
        arguments: list[Buffer | int],
        *,
        kernel: str = "k",
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        shared: int = 0,
    ) -> None:
        """Load PTX text, launch its kernel and wait."""
        function = self.function(self.load(ptx), kernel)
        self.launch(function, arguments, grid=grid, block=block, shared=shared)

    def close(self) -> None:
        """Unload all modules and free all buffers."""
        for module in self._modules:
            self._cuda.cuModuleUnload(module)
        for address in self._buffers:
            self._cuda.cuMemFree_v2(ctypes.c_uint64(address))


def entry(parameters: list[str], registers: str, body: str, before: str = "") -> str:
    """A module with one kernel `k`; parameter i of the given PTX type is named `p<i>`."""
    declared = ", ".join(f".param .{kind} p{k}" for k, kind in enumerate(parameters))
    return f"{before}\n.visible .entry k({declared})\n{{\n{registers}\n{body}\n}}\n"
