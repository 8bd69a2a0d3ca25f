"""Run a compiled model repeatedly, with one virtual machine and buffers for its inputs.

Sessions launch on the device's default stream. TVM's pool gives freed memory to the next call at
once, even if kernels still read it: on one stream these kernels end first, on several streams they
might not. Only CUDA graphs, whose memory is not in the pool, replay on a session's own stream; see
`graphs`. Source: TVM 0.27, src/runtime/memory/pooled_allocator.h, `PooledAllocator::Free`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from boltgen.artifact.metadata import Metadata, TensorInfo
from boltgen.errors import ArtifactError, BoltgenError, DeviceError, InputError
from boltgen.running.graphs import Graphs, Recordings
from boltgen.running.inputs import Inputs, Tensor, check_inputs, named_inputs
from boltgen.running.loaded import (
    LoadedLibrary,
    RelaxRunner,
    Runner,
    disagreement,
    last_line,
    release_unused_memory,
)
from boltgen.running.sizes import names_in, shape_at

Array: TypeAlias = npt.NDArray[Any]

_ON_HOST = 1  # DLPack's kDLCPU
# The size at a warm-up of a dimension without an upper limit.
_UNLIMITED = 1


class Session:
    """A compiled model on a device, with its weights and buffers for its inputs.

    Any thread may call it; calls wait for each other. To run several at once, open several
    sessions; each has its own weights on the device, because TVM's virtual machine does. With
    `graphs`, at most this many CUDA graphs are kept, which replay runs whose inputs are on the
    host.
    """

    def __init__(self, library: LoadedLibrary, graphs: int = 0) -> None:
        self._library: LoadedLibrary | None = library
        self._runner: Runner | None = library.runner()
        self._metadata = library.metadata
        self._owns_tensors = self._runner.owns_tensors
        self._buffers = [_Buffer(info, library.device) for info in library.metadata.inputs]
        self._running = threading.Lock()
        self._graphs: Graphs | None = None
        if graphs and isinstance(self._runner, RelaxRunner):
            self._graphs = Graphs(library, self._runner, graphs)

    @property
    def metadata(self) -> Metadata:
        """The metadata of the model: its inputs and outputs."""
        return self._metadata

    def run(self, inputs: Inputs) -> dict[str, Array]:
        """Run the model; return its outputs by name, as NumPy arrays.

        Inputs are given by name or in order. An input is a NumPy array or another object with
        DLPack. On the host it is copied to the device; on the device it is read in place.

        Raises:
            InputError: a name, shape or dtype does not fit the model.
            DeviceError: the device reports a fault, or the session is closed.
        """
        ready = self._checked(inputs)
        with self._running:
            library, runner = self._open()
            before, recordings = library.fault(), Recordings.number()
            try:
                values = self._replayed(ready, library)
                if values is None:
                    # A refused recording counts as a fault of the virtual GPU.
                    before, recordings = library.fault(), Recordings.number()
                    tensors = self._call(runner, ready)
                    library.device.sync()
                    values = [tensor.numpy() for tensor in tensors]
            except BoltgenError:
                raise
            except Exception as error:
                raise _failed(error, library) from error
            is_alone = recordings is not None and recordings == Recordings.number()
            if (fault := library.fault()) != before and is_alone:
                raise DeviceError(f"the run failed{fault}")
        return self._named(values)

    def run_on_device(self, inputs: Inputs) -> dict[str, Any]:
        """Run the model; return outputs by name as TVM tensors on the device, for DLPack.

        The outputs are written when the device's default stream reaches that point; each tensor
        owns its memory. Inputs are as for `run`.

        Raises:
            InputError: as for `run`.
            DeviceError: as for `run`.
            ArtifactError: the model was compiled with Relay, whose next call would overwrite the
                outputs.
        """
        ready = self._checked(inputs)
        with self._running:
            library, runner = self._open()
            if self._owns_tensors:
                raise ArtifactError(
                    f"{library.path} was compiled with the frontend 'relay', which keeps one set "
                    "of outputs: call `run`, or compile the model with --frontend relax"
                )
            try:
                return self._named(self._call(runner, ready))
            except Exception as error:
                raise _failed(error, library) from error

    def warm_up(self) -> None:
        """Run once on zeros of the largest sizes, so that later calls allocate no memory.

        A dimension without an upper limit is 1.

        Raises:
            InputError: the rank of an input is unknown before a run.
            DeviceError: the device reports a fault.
        """
        self.run(self.zeros())

    def zeros(self) -> dict[str, Array]:
        """Return inputs of the model's largest sizes, all zero."""
        limits = {each.name: each.high or each.low for each in self._metadata.dimensions}
        inputs = self._metadata.inputs
        sizes = {name: limits.get(name, _UNLIMITED) for name in names_in(inputs)}
        made: dict[str, Array] = {}
        for info in inputs:
            if info.shape is None:
                raise InputError(f"input {info.name!r} has no shape that is known before a run")
            made[info.name] = np.zeros(shape_at(info.shape, sizes), np.dtype(info.dtype))
        return made

    def forget_launches(self) -> None:
        """Clear the virtual GPU's launch records, which grow with every run of any session."""
        library = self._library
        if library is not None and library.active.vgpu is not None:
            library.active.vgpu.clear_launches()

    def close(self) -> None:
        """Free the weights, the buffers and the memory that TVM keeps for later calls.

        The library's code stays in the process. A second call is harmless.
        """
        with self._running:
            self._buffers.clear()
            self._graphs = None
            self._runner = None
            self._library = None
            release_unused_memory()

    def _open(self) -> tuple[LoadedLibrary, Runner]:
        if self._library is None or self._runner is None:
            raise DeviceError(f"the session of {self._metadata.model!r} is closed: open another")
        return self._library, self._runner

    def _checked(self, inputs: Inputs) -> list[Tensor]:
        """Return the inputs in the model's order, as NumPy arrays or TVM tensors."""
        named = named_inputs(self._metadata.inputs, inputs)
        given = {name: _imported(name, value, self._owns_tensors) for name, value in named.items()}
        check_inputs(self._metadata.inputs, given, self._metadata.dimensions)
        return [given[info.name] for info in self._metadata.inputs]

    def _call(self, runner: Runner, ready: Sequence[Any]) -> list[Any]:
        if self._owns_tensors:
            return runner.call([np.ascontiguousarray(value) for value in ready])
        return runner.call(
            [
                buffer.filled(value) if _is_on_host(value) else value
                for buffer, value in zip(self._buffers, ready, strict=True)
            ]
        )

    def _replayed(self, ready: Sequence[Any], library: LoadedLibrary) -> list[Array] | None:
        """Return the outputs by a CUDA graph, or None if no graph serves these inputs."""
        if self._graphs is None or not all(isinstance(value, np.ndarray) for value in ready):
            return None
        try:
            return self._graphs.run(ready)
        except DeviceError as error:
            raise _failed(error, library) from error

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        outputs = self._metadata.outputs
        if len(values) != len(outputs):
            raise disagreement("outputs", len(values), len(outputs))
        return dict(zip((info.name for info in self._metadata.outputs), values, strict=True))


class _Buffer:
    """Device memory for one input, as large as the largest value so far."""

    def __init__(self, info: TensorInfo, device: Any) -> None:
        self._info = info
        self._device = device
        self._memory: Any = None
        self._view: Any = None
        self._elements = 0
        self._shape: tuple[int, ...] | None = None

    def filled(self, value: Any) -> Any:
        """Return a tensor on the device with a copy of `value`, which is on the host."""
        from tvm import runtime  # noqa: PLC0415

        shape = tuple(map(int, value.shape))
        if shape != self._shape:
            elements = math.prod(shape)
            if self._memory is None or elements > self._elements:
                self._view = self._memory = self._shape = None  # free the old memory first
                self._memory = runtime.empty((elements,), self._info.dtype, self._device)
                self._elements = elements
            self._view = self._memory._create_view(shape)
            self._shape = shape
        if isinstance(value, np.ndarray):
            self._view.copyfrom(np.ascontiguousarray(value).reshape(shape))
        else:
            value.copyto(self._view)
        return self._view


def _imported(name: str, value: Any, host_only: bool) -> Any:
    """Return `value` without a copy: a NumPy array if it is on the host, else a TVM tensor.

    A value without DLPack is returned unchanged; `check_inputs` rejects it.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    if hasattr(value, "resolve_neg"):
        # PyTorch negates some views lazily, which DLPack does not export.
        value = value.resolve_neg()
    if hasattr(value, "detach"):
        value = value.detach()  # its gradient is not needed
    try:
        if host_only:
            return np.from_dlpack(value)
        from tvm import runtime  # noqa: PLC0415

        if isinstance(value, runtime.Tensor):
            return value
        on_host = value.__dlpack_device__()[0] == _ON_HOST
        return _on_host(value) if on_host else runtime.from_dlpack(value)
    except Exception as error:  # libraries raise their own types
        raise InputError(
            f"input {name!r}, a {type(value).__name__}, cannot be read by DLPack "
            f"({last_line(error)}): give it detached, contiguous and on the host"
            + ("" if host_only else " or the device")
        ) from error


def _on_host(value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # NumPy has no BF16
        from tvm import runtime  # noqa: PLC0415

        return runtime.from_dlpack(value)


def _is_on_host(value: Any) -> bool:
    return isinstance(value, np.ndarray) or value.__dlpack_device__()[0] == _ON_HOST


def _failed(error: Exception, library: LoadedLibrary) -> DeviceError:
    return DeviceError(f"the run failed: {last_line(error)}{library.fault()}")
