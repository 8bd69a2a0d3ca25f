"""CUDA graphs of a session: record each combination of input sizes once, then replay it.

A graph contains the addresses of the recorded run, so it owns that memory: the storages of TVM's
virtual machine, device memory for the inputs, and pinned memory for inputs and outputs. TVM's pool,
which does not know streams, gives none of it to another run. Graphs, unlike other runs, may
therefore replay on the session's own stream.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.device.cuda_runtime import CudaRuntime, Graph, Stream
from boltgen.errors import DeviceError
from boltgen.running.loaded import LoadedLibrary, RelaxRunner, last_line

Array: TypeAlias = npt.NDArray[Any]
Sizes: TypeAlias = tuple[tuple[int, ...], ...]

_log = logging.getLogger("boltgen.running")
# Recording stops after this many failures in a row; one may fail for lack of memory.
_MOST_FAILURES = 3
# A graph is kept if it was used in the last `_LATELY` runs per kept graph. Otherwise every run
# would record if more sizes take turns than there are graphs.
_LATELY = 8
_ON_GPU = 2  # DLPack's kDLCUDA
# By this function TVM's kernels allocate memory that belongs to a thread, not to a run; libraries
# that call it are not recorded.
_WORKSPACE = b"TVMBackendAllocWorkspace"


class Recordings:
    """The number of recordings; the virtual GPU reports a refused recording to all threads."""

    _counting = threading.Lock()
    _began = _ended = 0

    @classmethod
    def number(cls) -> int | None:
        """Return the number of recordings so far, or None while one is in progress."""
        with cls._counting:
            return cls._began if cls._began == cls._ended else None

    @classmethod
    @contextmanager
    def one(cls) -> Iterator[None]:
        """Count the block as a recording."""
        with cls._counting:
            cls._began += 1
        try:
            yield
        finally:
            with cls._counting:
                cls._ended += 1


class Graphs:
    """The graphs of one session's runs, at most `most` at a time."""

    def __init__(self, library: LoadedLibrary, runner: RelaxRunner, most: int) -> None:
        self._runner = runner
        self._device = library.device
        self._runtime = CudaRuntime()
        self._stream = self._runtime.stream()
        self._most = most
        self._runs = 0
        # The least recently used graph comes first.
        self._kept: OrderedDict[Sizes, _Recorded] = OrderedDict()
        self._failures = _MOST_FAILURES if _has_workspaces(library) else 0

    def run(self, inputs: Sequence[Array]) -> list[Array] | None:
        """Return the outputs for inputs on the host, or None if no graph serves these sizes.

        Raises:
            DeviceError: the device reports a fault.
        """
        self._runs += 1
        sizes = tuple(array.shape for array in inputs)
        recorded = self._kept.get(sizes) or self._record(sizes, inputs)
        if recorded is None:
            return None
        self._kept.move_to_end(sizes)
        recorded.used = self._runs
        return recorded.run(self._stream, inputs)

    def _record(self, sizes: Sizes, inputs: Sequence[Array]) -> _Recorded | None:
        if self._failures >= _MOST_FAILURES:
            return None
        if len(self._kept) >= self._most:
            oldest = next(iter(self._kept.values()))
            if self._runs - oldest.used <= _LATELY * self._most:
                return None
            self._kept.popitem(last=False)  # frees its memory before the new graph takes its own
        try:
            with Recordings.one():
                self._kept[sizes] = recorded = self._recorded(inputs)
        except Exception as error:
            self._failures += 1
            _log.warning("runs of sizes %s are not recorded: %s", sizes, last_line(error))
            return None
        self._failures = 0
        return recorded

    def _recorded(self, inputs: Sequence[Array]) -> _Recorded:
        from tvm import runtime  # noqa: PLC0415

        tensors = [runtime.empty(each.shape, str(each.dtype), self._device) for each in inputs]
        for tensor, value in zip(tensors, inputs, strict=True):
            tensor.copyfrom(np.ascontiguousarray(value))
        # First run without recording, to load kernels, on the default stream that TVM's pool needs.
        outputs = self._runner.call(tensors)
        self._device.sync()
        ends = (
            [self._pinned(tensor) for tensor in tensors],
            [self._pinned(tensor) for tensor in outputs],
        )
        stream = self._stream
        self._device.set_raw_stream(stream.handle)
        try:
            with stream.captured() as graphs:
                for pinned, tensor in zip(ends[0], tensors, strict=True):
                    stream.copy_to_device(tensor.data_ptr(), pinned)
                allowed = self._runtime.other_capture_mode()
                outputs, held = self._runner.call_and_hold(tensors, allowed)
                for pinned, tensor in zip(ends[1], outputs, strict=True):
                    stream.copy_to_host(pinned, tensor.data_ptr())
        finally:
            self._device.set_raw_stream(0)
        # The pool may have given memory to this run that kernels of other sessions still use.
        self._runtime.wait_for_all()
        return _Recorded(graphs[0], *ends, (tensors, outputs, held))

    def _pinned(self, tensor: Any) -> Array:
        """Return pinned memory for the elements of a tensor on the device."""
        if tensor.__dlpack_device__()[0] != _ON_GPU or not tensor.is_contiguous():
            raise DeviceError("an output is not in one piece on the device")
        return self._runtime.pinned(tuple(map(int, tensor.shape)), np.dtype(str(tensor.dtype)))


@dataclass(slots=True)
class _Recorded:
    """A graph, the pinned memory of its inputs and outputs, and the owners of its device memory."""

    graph: Graph
    inputs: list[Array]
    outputs: list[Array]
    owners: object
    used: int = 0

    def run(self, stream: Stream, values: Sequence[Array]) -> list[Array]:
        for pinned, value in zip(self.inputs, values, strict=True):
            np.copyto(pinned, value)
        self.graph.launch(stream)
        stream.wait()
        return [pinned.copy() for pinned in self.outputs]


def _has_workspaces(library: LoadedLibrary) -> bool:
    with library.path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
        return text.find(_WORKSPACE) >= 0
