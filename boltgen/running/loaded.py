"""A library on a device: loaded once per process, with a runner for each concurrent caller.

TVM's virtual machine keeps the values of a call, and its graph executor the inputs, so two threads
in one of them would see each other's tensors. Each runner therefore has its own virtual machine or
executor. All runners of a file share the module, whose code and static data are the process's.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from boltgen.arch import best_name
from boltgen.artifact.metadata import Metadata
from boltgen.device.choose import ActiveDevice, DeviceKind, activate
from boltgen.errors import ArtifactError, DeviceError
from boltgen.frontend.relay.versions import require_relax, require_relay


class LoadedLibrary:
    """A model's library in this process, with its device; `loaded_library` makes it."""

    def __init__(self, path: Path, metadata: Metadata, active: ActiveDevice) -> None:
        self.path = path
        self.metadata = metadata
        self.active = active
        import tvm  # noqa: PLC0415

        self.device = tvm.cuda(0)
        if not self.device.exist:
            raise DeviceError(f"TVM sees no device 0 on {active.kind.value!r}{self.fault()}")
        if self.active.kind is DeviceKind.CUDA:
            check_capability(metadata.arch, self.device.compute_version)
        try:
            self.module = tvm.runtime.load_module(str(path))
        except Exception as error:
            raise self.refused(error) from error

    def refused(self, error: Exception) -> ArtifactError:
        """Return the error to raise if TVM raised `error` while loading."""
        return ArtifactError(f"{self.path} cannot be loaded: {last_line(error)}{self.fault()}")

    def fault(self) -> str:
        """Return the virtual GPU's last fault, as the end of a message."""
        said = self.active.last_error()
        return f":\n{said}" if said else ""

    def runner(self) -> Runner:
        """Return a new runner of the library, with its own copy of the weights on the device.

        Raises:
            ArtifactError: TVM cannot make the runner, for instance because device memory is short.
        """
        kind = RelayRunner if self.metadata.frontend == "relay" else RelaxRunner
        try:
            return kind(self)
        except ArtifactError:
            raise
        except Exception as error:
            raise self.refused(error) from error


def device_bytes_in_use() -> int:
    """Return the bytes of device 0's memory that are not free, whoever uses them.

    Raises:
        DeviceError: TVM sees no device.
    """
    import tvm  # noqa: PLC0415

    device = tvm.cuda(0)
    if not device.exist:
        raise DeviceError("TVM sees no device 0")
    return int(device.total_global_memory - device.available_global_memory)


_loading = threading.Lock()
# By device and file, as the dynamic loader also identifies a library by its file.
_libraries: WeakValueDictionary[tuple[str, int, int], LoadedLibrary] = WeakValueDictionary()


def loaded_library(path: Path, metadata: Metadata, device: str) -> LoadedLibrary:
    """Return the library at `path`, loaded now or earlier by a caller that still holds it.

    The virtual GPU takes the model's architecture.

    Raises:
        ToolchainError: the installed TVM cannot run the library.
        DeviceError: the device does not exist or cannot run code for the model's architecture.
        ArtifactError: the library cannot be read, or TVM cannot load it.
    """
    (require_relay if metadata.frontend == "relay" else require_relax)()
    with _loading:
        active = activate(device, arch=metadata.arch)
        try:
            found = path.stat()
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror or error}") from error
        key = (device, found.st_dev, found.st_ino)
        library = _libraries.get(key)
        if library is None or library.metadata.library_sha256 != metadata.library_sha256:
            library = LoadedLibrary(path, metadata, active)
            _libraries[key] = library
        return library


class Runner(ABC):
    """Runs a library for one caller at a time."""

    # Whether the runner has its own tensors for inputs and outputs, which every call overwrites. It
    # then takes NumPy arrays, otherwise tensors on the device.
    owns_tensors: ClassVar[bool]

    @abstractmethod
    def call(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the outputs, TVM tensors on the device, for inputs in the model's order."""


class RelaxRunner(Runner):
    """A runner by TVM's virtual machine."""

    owns_tensors = False

    def __init__(self, library: LoadedLibrary) -> None:
        from tvm import relax  # noqa: PLC0415

        self._machine = relax.VirtualMachine(library.module, library.device)
        entry, inputs = library.metadata.entry, library.metadata.inputs
        self._entry: Callable[..., Any] = self._machine[entry]
        taken = int(self._machine._get_function_arity(entry))
        if taken != len(inputs):
            raise disagreement("inputs", taken, len(inputs))

    def call(self, tensors: Sequence[Any]) -> list[Any]:  # noqa: D102 (inherited)
        result = self._entry(*tensors)
        return [result] if hasattr(result, "numpy") else list(result)

    def call_and_hold(
        self, tensors: Sequence[Any], around_allocation: Callable[[], None]
    ) -> tuple[list[Any], list[Any]]:
        """Return the outputs of a call, and the storages that it allocated, for the caller to keep.

        `around_allocation` is called before and after each allocation.
        """
        held: list[Any] = []
        is_allocating = False

        def look(_: object, name: str, is_before: bool, result: Any, *__: object) -> int:
            nonlocal is_allocating
            if name == "vm.builtin.alloc_storage":
                around_allocation()
                is_allocating = is_before
                if not is_before:
                    held.append(result)
            return 0  # TVM's VMInstrumentReturnKind::kNoOp

        self._machine.set_instrument(look)
        try:
            return self.call(tensors), held
        finally:
            self._machine.set_instrument(None)
            if is_allocating:  # the allocation failed
                around_allocation()


class RelayRunner(Runner):
    """A runner by TVM's graph executor."""

    owns_tensors = True

    def __init__(self, library: LoadedLibrary) -> None:
        from tvm.contrib import graph_executor  # noqa: PLC0415

        self._executor = graph_executor.GraphModule(library.module["default"](library.device))

    def call(self, tensors: Sequence[Any]) -> list[Any]:  # noqa: D102 (inherited)
        for position, tensor in enumerate(tensors):
            self._executor.set_input(position, tensor)
        self._executor.run()
        count = self._executor.get_num_outputs()
        return [self._executor.get_output(position) for position in range(count)]


def disagreement(kind: str, of_library: int, of_metadata: int) -> ArtifactError:
    """Return the error for a library whose number of inputs or outputs contradicts its metadata."""
    return ArtifactError(
        f"metadata.json names {of_metadata} {kind}, the library has {of_library}: one of them is "
        "damaged; compile the model again"
    )


def release_unused_memory() -> None:
    """Free device memory that TVM keeps for later calls; memory in use stays."""
    import tvm  # noqa: PLC0415

    clear = tvm.get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)
    if clear is not None:
        clear()


def check_capability(arch: str, capability: str) -> None:
    """Check that a GPU with a compute capability ("8.6") can run code for `arch`.

    A library has machine code for `arch`, and PTX, which newer GPUs compile; code for an
    architecture with a suffix ("sm_90a") runs only on that architecture.

    Raises:
        DeviceError: the GPU cannot run the code.
    """
    number = arch.removeprefix("sm_")
    digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
    wanted = (int(digits[:-1]), int(digits[-1]))
    major, _, minor = capability.partition(".")
    found = (int(major), int(minor or 0))
    if found < wanted or (digits != number and found != wanted):
        gpu = f"sm_{found[0]}{found[1]}"
        raise DeviceError(
            f"the model was compiled for {arch}, the GPU is {gpu}: compile it "
            f"with --arch {best_name(gpu)}, or run it on the virtual GPU (--device vgpu)"
        )


def last_line(error: Exception) -> str:
    """Return the last line of a TVM message; the lines before are TVM's stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
