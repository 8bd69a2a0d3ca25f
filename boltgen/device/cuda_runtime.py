"""The functions of CUDA's runtime that TVM does not expose: streams, graphs and pinned memory.

Calls go to the runtime that this process has loaded, a GPU's or the virtual GPU's. Streams, graphs
and memory are freed when no object refers to them.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from boltgen.errors import DeviceError

_LIBRARY = "libcudart.so.13"
# cudaStreamNonBlocking: this stream and the default stream do not wait for each other.
_NON_BLOCKING = 1
# cudaStreamCaptureModeThreadLocal: an operation that a graph cannot contain (an allocation, a
# synchronous copy) is an error in this thread, not in other threads.
_THREAD_LOCAL = 1
# cudaStreamCaptureModeRelaxed: such an operation is no error.
_RELAXED = 2
_DEVICE_TO_HOST, _HOST_TO_DEVICE = 2, 1


class CudaRuntime:
    """The CUDA runtime of this process, for the current device."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the runtime.

        Raises:
            DeviceError: the call fails.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            said = self._library.cudaGetErrorString(status).decode()
            self._library.cudaGetLastError()  # else the next call that asks would be told of it
            raise DeviceError(f"{name}: {said} ({status})")

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array in pinned host memory, which the device copies asynchronously."""
        size_bytes = max(1, math.prod(shape) * dtype.itemsize)
        address = ctypes.c_void_p()
        self.call("cudaMallocHost", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        assert address.value is not None
        memory: Any = (ctypes.c_char * size_bytes).from_address(address.value)
        # Views of the array keep `memory` alive.
        self._free_with(memory, "cudaFreeHost", address.value)
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, memory)
        return array

    def stream(self) -> Stream:
        """Return a new stream beside the default stream."""
        handle = ctypes.c_void_p()
        self.call("cudaStreamCreateWithFlags", ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING))
        assert handle.value is not None
        stream = Stream(self, handle.value)
        self._free_with(stream, "cudaStreamDestroy", handle.value)
        return stream

    def other_capture_mode(self) -> Callable[[], None]:
        """Return a function that toggles this thread's capture mode.

        Its first call permits allocations during a capture, its second call forbids them again.
        """
        mode = ctypes.c_int(_RELAXED)
        return lambda: self.call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def wait_for_all(self) -> None:
        """Wait for all work that any thread has enqueued on the device.

        Raises:
            DeviceError: some of the work failed.
        """
        self.call("cudaDeviceSynchronize")

    def _free_with(self, owner: object, function: str, handle: int) -> None:
        free: Callable[..., object] = getattr(self._library, function)
        # At the end of the process the driver frees the rest itself, and may be unloaded already.
        weakref.finalize(owner, free, ctypes.c_void_p(handle)).atexit = False


class Stream:
    """A stream; `CudaRuntime.stream` makes it."""

    def __init__(self, runtime: CudaRuntime, handle: int) -> None:
        self._runtime = runtime
        self.handle = handle

    def copy_to_host(self, to: npt.NDArray[Any], address: int) -> None:
        """Enqueue a copy of device memory at `address` to an array in pinned memory."""
        self._copy(to.ctypes.data, address, to.nbytes, _DEVICE_TO_HOST)

    def copy_to_device(self, address: int, value: npt.NDArray[Any]) -> None:
        """Enqueue a copy of an array in pinned memory to device memory at `address`."""
        self._copy(address, value.ctypes.data, value.nbytes, _HOST_TO_DEVICE)

    @contextmanager
    def captured(self) -> Iterator[list[Graph]]:
        """Capture the work that the block enqueues, without running it; append its graph.

        Raises:
            DeviceError: a graph cannot contain some of the work.
        """
        found: list[Graph] = []
        self._runtime.call("cudaStreamBeginCapture", ctypes.c_void_p(self.handle), _THREAD_LOCAL)
        graph = ctypes.c_void_p()
        end = ("cudaStreamEndCapture", ctypes.c_void_p(self.handle), ctypes.byref(graph))
        try:
            yield found
        except BaseException:
            try:
                self._runtime.call(*end)
            except DeviceError:
                pass  # it follows from the error that is raised here
            else:
                self._runtime.call("cudaGraphDestroy", graph)
            raise
        self._runtime.call(*end)
        try:
            found.append(Graph(self._runtime, graph))
        finally:
            self._runtime.call("cudaGraphDestroy", graph)

    def wait(self) -> None:
        """Wait until all enqueued work is done.

        Raises:
            DeviceError: some of the work failed.
        """
        self._runtime.call("cudaStreamSynchronize", ctypes.c_void_p(self.handle))

    def _copy(self, to: int, source: int, size_bytes: int, kind: int) -> None:
        pointers = ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size_bytes)
        self._runtime.call("cudaMemcpyAsync", *pointers, kind, ctypes.c_void_p(self.handle))


class Graph:
    """A graph that can be launched repeatedly; `Stream.captured` makes it."""

    def __init__(self, runtime: CudaRuntime, graph: ctypes.c_void_p) -> None:
        self._runtime = runtime
        self._handle = ctypes.c_void_p()
        no_flags = ctypes.c_ulonglong(0)
        runtime.call("cudaGraphInstantiate", ctypes.byref(self._handle), graph, no_flags)
        assert self._handle.value is not None
        runtime._free_with(self, "cudaGraphExecDestroy", self._handle.value)

    def launch(self, stream: Stream) -> None:
        """Enqueue the captured work on `stream`."""
        self._runtime.call("cudaGraphLaunch", self._handle, ctypes.c_void_p(stream.handle))
