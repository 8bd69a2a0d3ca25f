"""A process that has the device, which a kernel may take with it.

TVM is imported only there, once the device is chosen.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.gpu.tuned_log import LogError
from boltgen.runtime.device import DeviceKind, activate

# Launches of an average, averages, and the least duration of one in ms: MetaSchedule's own. On the
# virtual GPU, where a second run takes as long and gives the same, a single one.
_TIMED = {DeviceKind.CUDA: (3, 1, 100), DeviceKind.VGPU: (1, 1, 0)}
# MetaSchedule's own limit for a run is 30 s. A process starts with importing TVM.
_MOST_RUN_S = {DeviceKind.CUDA: 30.0, DeviceKind.VGPU: 300.0}
_MOST_START_S = 300.0


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself."""

    name: str
    arch: str


class DeviceProcess:
    """A process that has the device, started again after whatever went wrong."""

    def __init__(self, kind: DeviceKind, arch: str) -> None:
        self.kind, self._arch = kind, arch
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Connection | None = None

    def facts(self) -> DeviceFacts:
        """The device's name and arch.

        Raises:
            LogError: there is no such device.
        """
        facts, error = self.ask(_facts)
        if facts is None:
            raise LogError(f"nothing can be tuned here: {error}")
        found: DeviceFacts = facts
        return found

    def ask(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
        """What `function` returns there; or None, and why."""
        most_s = _MOST_RUN_S[self.kind]
        if self._connection is None:
            most_s += _MOST_START_S
            self._start()
        assert self._connection is not None
        answer: tuple[Any, str | None]
        try:
            self._connection.send((function, arguments))
            if self._connection.poll(most_s):
                answer = self._connection.recv()
            else:
                answer = None, f"it took over {most_s:.0f} s"
        except (EOFError, OSError) as error:
            answer = None, f"the process died of it ({error!r})"
        if answer[1] is not None:
            self.close()  # after a fault, a CUDA context is of no more use
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        target = (theirs, self.kind, self._arch)
        self._process = self._context.Process(target=_serve, args=target, daemon=True)
        self._process.start()
        theirs.close()


def _serve(connection: Connection, kind: DeviceKind, arch: str) -> None:
    """The process: answers until nobody asks."""
    unusable = ""
    try:
        activate(kind.value, arch=arch)
    except Exception as error:  # told to whoever asks
        unusable = str(error)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = (None, unusable) if unusable else (function(*arguments), None)
        except Exception as error:  # the candidate's
            answer = None, str(error)[-2000:]
        connection.send(answer)


def _facts() -> DeviceFacts:
    import tvm  # noqa: PLC0415

    device = tvm.cuda(0)
    return DeviceFacts(device.device_name, "sm_" + device.compute_version.replace(".", ""))


def time_library(kind: DeviceKind, library: str, arguments: list[Any]) -> list[float]:
    """Seconds of a call of the library's function, as MetaSchedule's own runner takes them.

    `arguments` are what TVM's `ArgInfo.as_json` gives: ("TENSOR", dtype, shape).
    """
    import tvm  # noqa: PLC0415

    device = tvm.cuda(0)
    module = tvm.runtime.load_module(library)
    fill = tvm.get_global_func("tvm.contrib.random.random_fill_for_measure")
    tensors = []
    for _, dtype, shape in arguments:
        tensors.append(tvm.runtime.empty(shape=shape, dtype=dtype, device=device))
        fill(tensors[-1])
    evaluator = module.time_evaluator("main", device, *_TIMED[kind])
    device.sync()
    return [float(time_s) for time_s in evaluator(*tensors).results]
