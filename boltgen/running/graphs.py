"""CUDA graphs of a session: each combination of sizes is recorded once, then replayed.

A graph has the addresses of the run that was recorded, so it owns what lies there: the storages
that TVM's virtual machine had, device memory for the inputs, and pinned memory for both ends. No
other run gets any of it from TVM's pool, which knows no streams; hence graphs, unlike other runs,
may be replayed on a stream of their session's own.
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
# Failed recordings in a row before recording stops; the first may fail for lack of memory.
_MOST_FAILURES = 3
# A graph stays if it was used in the last runs: so many for each kept graph. If more sizes take
# turns than there are graphs, every run would be a recording otherwise.
_LATELY = 8
_ON_GPU = 2  # DLPack's kDLCUDA
# TVM's kernels allocate memory of their own by this function: the memory belongs to a thread, not
# to a run.
_WORKSPACE = b"TVMBackendAllocWorkspace"


class Recordings:
    """The number of this process's recordings: the virtual GPU reports a refusal to all threads."""

    _counting = threading.Lock()
    _began = _ended = 0

    @classmethod
    def number(cls) -> int | None:
        """Return how many recordings there were, or None while one is under way."""
        with cls._counting:
            return cls._began if cls._began == cls._ended else None

    @classmethod
    @contextmanager
    def one(cls) -> Iterator[None]:
        """Count the block as one recording."""
        with cls._counting:
            cls._began += 1
        try:
            yield
        finally:
            with cls._counting:
                cls._ended += 1


class Graphs:
    """Graphs of one session's runs, `most` of them at a time."""

    def __init__(self, library: LoadedLibrary, runner: RelaxRunner, most: int) -> None:
        self._runner = runner
        self._device = library.device
        self._runtime = CudaRuntime()
        self._stream = self._runtime.stream()
        self._most = most
        self._runs = 0
        # The one unused for longest first.
        self._kept: OrderedDict[Sizes, _Recorded] = OrderedDict()
        self._failures = _MOST_FAILURES if _has_workspaces(library) else 0

    def run(self, inputs: Sequence[Array]) -> list[Array] | None:
        """Return the outputs for inputs on the host, or None if they have to be computed without a
        graph.

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
            self._kept.popitem(last=False)  # before the new one takes its memory
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
        # First without recording, which loads kernels; on the stream that TVM's pool is safe on.
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
        # Kernels of other sessions may still use what the pool has given to this run.
        self._runtime.wait_for_all()
        return _Recorded(graphs[0], *ends, (tensors, outputs, held))

    def _pinned(self, tensor: Any) -> Array:
        """Pinned memory for the elements of a tensor on the device."""
        if tensor.__dlpack_device__()[0] != _ON_GPU or not tensor.is_contiguous():
            raise DeviceError("an output is not in one piece on the device")
        return self._runtime.pinned(tuple(map(int, tensor.shape)), np.dtype(str(tensor.dtype)))


@dataclass(slots=True)
class _Recorded:
    """A graph, the pinned memory at its ends, and what owns the device memory that it uses."""

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
