"""Arrays on the device."""

from __future__ import annotations

import numpy as np

from boltgen.measure.native import Profiler


class Device:
    """Arrays on the device, freed together."""

    def __init__(self, profiler: Profiler) -> None:
        self.profiler, self._live = profiler, []

    def upload(self, array) -> int:
        contents = np.ascontiguousarray(array)
        address = self.empty(contents.nbytes)
        self.profiler.copy(address, contents.ctypes.data, contents.nbytes)
        return address

    def empty(self, size_bytes: int) -> int:
        self._live.append(self.profiler.allocate(size_bytes))
        return self._live[-1]

    def download(self, address: int, shape, dtype):
        out = np.empty(shape, dtype)
        self.profiler.copy(out.ctypes.data, address, out.nbytes)
        return out

    def close(self) -> None:
        for address in self._live:
            self.profiler.release(address)
