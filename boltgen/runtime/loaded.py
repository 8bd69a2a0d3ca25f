"""A loaded library on a device: what stays in memory between runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from boltgen.arch import best_name
from boltgen.errors import ArtifactError, BoltgenError, DeviceError
from boltgen.frontend.relay.versions import require_relax, require_relay
from boltgen.runtime.device import DeviceKind, activate
from boltgen.runtime.metadata import Metadata

Array: TypeAlias = npt.NDArray[Any]


class LoadedModel(ABC):
    """A model's library, loaded by TVM, with its weights on the device.

    Raises:
        ToolchainError: the installed TVM is none that runs the library.
        DeviceError: the device is not there or cannot run code for the model's arch.
        ArtifactError: TVM refuses the library.
    """

    # Checks that the installed TVM is one of those that the library is for.
    require: ClassVar[Callable[[], object]]

    def __init__(self, library: Path, metadata: Metadata, device: str) -> None:
        type(self).require()
        self._active = activate(device, arch=metadata.arch)
        self._metadata = metadata
        import tvm  # noqa: PLC0415

        self._device = tvm.cuda(0)
        if not self._device.exist:
            raise DeviceError(f"TVM sees no device 0 on {device!r}{self._fault()}")
        if self._active.kind is DeviceKind.CUDA:
            check_capability(metadata.arch, self._device.compute_version)
        try:
            self._load(tvm.runtime.load_module(str(library)))
        except Exception as error:
            raise ArtifactError(
                f"{library} cannot be loaded: {last_line(error)}{self._fault()}"
            ) from error

    @abstractmethod
    def _load(self, module: Any) -> None:
        """Make what runs the loaded library."""

    @abstractmethod
    def _call(self, arrays: Sequence[Array]) -> list[Any]:
        """The outputs, tensors of TVM's on the device, for inputs in the model's order."""

    def run(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """The outputs for inputs in the model's order.

        Raises:
            DeviceError: the device reports a fault.
        """
        before = self._fault()
        try:
            outputs = self._call(arrays)
            self._device.sync()
            values = [tensor.numpy() for tensor in outputs]
        except BoltgenError:
            raise
        except Exception as error:
            raise DeviceError(f"the run failed: {last_line(error)}{self._fault()}") from error
        if (fault := self._fault()) != before:
            raise DeviceError(f"the run failed{fault}")
        names = [info.name for info in self._metadata.outputs]
        return dict(zip(names, values, strict=True))

    def _fault(self) -> str:
        """What the virtual GPU says of its last fault, as the end of a message."""
        said = self._active.last_error()
        return f":\n{said}" if said else ""


class LoadedRelaxModel(LoadedModel):
    """TVM's virtual machine."""

    require = require_relax

    def _load(self, module: Any) -> None:
        from tvm import relax, runtime  # noqa: PLC0415

        self._tensor = runtime.tensor
        self._entry = relax.VirtualMachine(module, self._device)[self._metadata.entry]

    def _call(self, arrays: Sequence[Array]) -> list[Any]:
        result = self._entry(*(self._tensor(array, self._device) for array in arrays))
        return [result] if hasattr(result, "numpy") else list(result)


class LoadedRelayModel(LoadedModel):
    """TVM's graph executor."""

    require = require_relay

    def _load(self, module: Any) -> None:
        from tvm.contrib import graph_executor  # noqa: PLC0415

        self._executor = graph_executor.GraphModule(module["default"](self._device))

    def _call(self, arrays: Sequence[Array]) -> list[Any]:
        for position, array in enumerate(arrays):
            self._executor.set_input(position, array)
        self._executor.run()
        count = self._executor.get_num_outputs()
        return [self._executor.get_output(position) for position in range(count)]


def check_capability(arch: str, capability: str) -> None:
    """Compare a GPU's compute capability ("8.6") with the architecture that code was made for.

    A library holds machine code for `arch` and PTX, which newer GPUs translate; code for an
    architecture with a suffix ("sm_90a") runs on that one only.

    Raises:
        DeviceError: the GPU cannot run it.
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
    """The end of what TVM says: the lines before it are its own stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
