"""A loaded library of the Relay frontend on a device: TVM's graph executor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.errors import ArtifactError, DeviceError
from boltgen.frontend.relay.versions import require_relay
from boltgen.runtime.device import DeviceKind, activate
from boltgen.runtime.metadata import Metadata
from boltgen.runtime.session import check_capability, last_line


class RelaySession:
    """The graph executor with the model's weights on the device.

    Raises:
        ToolchainError: the installed TVM has no Relay.
        DeviceError: the device is not there or cannot run code for the model's arch.
        ArtifactError: TVM refuses the library.
    """

    def __init__(self, library: Path, metadata: Metadata, device: str) -> None:
        require_relay()
        self._active = activate(device, arch=metadata.arch)
        self._metadata = metadata
        import tvm  # noqa: PLC0415
        from tvm.contrib import graph_executor  # noqa: PLC0415

        self._device = tvm.cuda(0)
        if not self._device.exist:
            raise DeviceError(f"TVM sees no device 0 on {device!r}{self._fault()}")
        if self._active.kind is DeviceKind.CUDA:
            check_capability(metadata.arch, self._device.compute_version)
        try:
            loaded = tvm.runtime.load_module(str(library))
            self._executor = graph_executor.GraphModule(loaded["default"](self._device))
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
            for position, array in enumerate(arrays):
                self._executor.set_input(position, array)
            self._executor.run()
            self._device.sync()
            count = self._executor.get_num_outputs()
            values = [self._executor.get_output(position).numpy() for position in range(count)]
        except Exception as error:
            raise DeviceError(f"the run failed: {last_line(error)}{self._fault()}") from error
        if fault := self._fault():
            raise DeviceError(f"the run failed{fault}")
        names = [info.name for info in self._metadata.outputs]
        return dict(zip(names, values, strict=True))

    def _fault(self) -> str:
        """What the virtual GPU says of its last fault, as the end of a message."""
        said = self._active.last_error()
        return f":\n{said}" if said else ""
