"""A loaded library on a device: what stays in memory between runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.errors import ArtifactError, BoltgenError, DeviceError
from boltgen.frontend.relay.versions import require_relax
from boltgen.runtime.device import DeviceKind, activate
from boltgen.runtime.metadata import Metadata


class Session:
    """The model's virtual machine with its weights on the device.

    Raises:
        ToolchainError: the installed TVM is not one with Relax.
        DeviceError: the device is not there or cannot run code for the model's arch.
        ArtifactError: TVM refuses the library.
    """

    def __init__(self, library: Path, metadata: Metadata, device: str) -> None:
        require_relax()
        self._active = activate(device, arch=metadata.arch)
        self._metadata = metadata
        import tvm  # noqa: PLC0415
        from tvm import relax  # noqa: PLC0415

        self._tvm = tvm
        self._device = tvm.cuda(0)
        if not self._device.exist:
            raise DeviceError(f"TVM sees no device 0 on {device!r}{self._fault()}")
        if self._active.kind is DeviceKind.CUDA:
            check_capability(metadata.arch, self._device.compute_version)
        try:
            self._machine = relax.VirtualMachine(
                tvm.runtime.load_module(str(library)), self._device
            )
            self._entry = self._machine[metadata.entry]
        except Exception as error:
            raise ArtifactError(
                f"{library} cannot be loaded: {last_line(error)}{self._fault()}"
            ) from error

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs for inputs in the model's order.

        Raises:
            DeviceError: the device reports a fault.
        """
        try:
            arguments = [self._tvm.runtime.tensor(array, self._device) for array in arrays]
            result = self._entry(*arguments)
            self._device.sync()
            found = [result] if hasattr(result, "numpy") else list(result)
            values = [tensor.numpy() for tensor in found]
        except BoltgenError:
            raise
        except Exception as error:
            raise DeviceError(f"the run failed: {last_line(error)}{self._fault()}") from error
        names = [info.name for info in self._metadata.outputs]
        return dict(zip(names, values, strict=True))

    def _fault(self) -> str:
        """What the virtual GPU says of its last fault, as the end of a message."""
        said = self._active.last_error()
        return f":\n{said}" if said else ""


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
        raise DeviceError(
            f"the model was compiled for {arch}, the GPU is sm_{found[0]}{found[1]}: compile it "
            f"with --arch sm_{found[0]}{found[1]}, or run it on the virtual GPU (--device vgpu)"
        )


def last_line(error: Exception) -> str:
    """The end of what TVM says: the lines before it are its own stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
