"""The virtual GPU of this process: memory, PTX modules and launches by the driver's interface."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.race.problems import Array, Arrays
from boltgen.arch import device_for
from boltgen.device.choose import activate
from boltgen.device.vgpu import Vgpu

_POISON = 0xFF  # NaN in every floating-point type
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_TO_DEVICE, _TO_HOST = 1, 2
# Seconds of one launch. A kernel that takes longer hangs, or its problem is too large for a race.
_TIMEOUT_S = 600


class LaunchError(Exception):
    """The virtual GPU refused or ended a launch; the text is its message."""


class Machine:
    """Memory and launches on the virtual GPU. Tensors are packed, as their sectors are counted."""

    def __init__(self) -> None:
        device = activate("vgpu")
        assert device.vgpu is not None
        self.vgpu: Vgpu = device.vgpu
        self.vgpu.set_option("timeout", _TIMEOUT_S)
        self._runtime = ctypes.CDLL("libcudart.so.13")
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._live: list[ctypes.c_void_p] = []

    def become(self, arch: str) -> None:
        """Make the device one of that architecture, without memory of what failed before."""
        self.vgpu.clear_error()
        self.vgpu.clear_findings()
        self.vgpu.set_option("device", device_for(arch))

    def check(self, status: int) -> None:
        """Raise LaunchError for a status other than 0."""
        if status:
            raise LaunchError(self.vgpu.last_error() or f"CUDA error {status}")

    def allocate(self, size_bytes: int) -> int:
        """Return the address of poisoned memory."""
        pointer = ctypes.c_void_p()
        self.check(self._runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size_bytes)))
        self._live.append(pointer)
        self.check(self._runtime.cudaMemset(pointer, _POISON, ctypes.c_size_t(size_bytes)))
        return int(pointer.value or 0)

    def upload(self, arrays: Arrays) -> dict[str, int]:
        """Return the addresses of device copies, by name."""
        found = {}
        for name, array in arrays.items():
            found[name] = self.allocate(array.nbytes)
            self.write(found[name], array)
        return found

    def download(self, address: int, shape: Sequence[int], dtype: Any = np.float16) -> Array:
        """Wait for the device, and return a tensor of it."""
        self.check(self._runtime.cudaDeviceSynchronize())
        found = np.empty(tuple(shape), dtype)
        self._copy(found.ctypes.data, address, found.nbytes, _TO_HOST)
        return found

    def write(self, address: int, array: Array) -> None:
        """Copy an array to memory of the device."""
        source = np.ascontiguousarray(array)
        self._copy(address, source.ctypes.data, source.nbytes, _TO_DEVICE)

    def free_all(self) -> None:
        """Free what was allocated."""
        while self._live:
            self._runtime.cudaFree(self._live.pop())

    def launch_ptx(
        self,
        ptx: str,
        kernel: str,
        *,
        grid: Sequence[int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[Any],
    ) -> None:
        """Load a module and launch one of its kernels; `arguments` are of types of ctypes."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = self._driver
        self.check(driver.cuModuleLoadData(ctypes.byref(module), ptx.encode()))
        self.check(driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()))
        self.check(driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        extents = [*grid, *(1,) * (3 - len(grid)), threads, 1, 1]
        self.check(driver.cuLaunchKernel(function, *extents, shared_bytes, None, places, None))

    def _copy(self, target: int, source: int, size_bytes: int, kind: int) -> None:
        ends = ctypes.c_void_p(target), ctypes.c_void_p(source)
        self.check(self._runtime.cudaMemcpy(*ends, ctypes.c_size_t(size_bytes), kind))
