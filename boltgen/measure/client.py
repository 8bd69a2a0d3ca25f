"""Keeps a worker running: sends it candidates, waits so long and no longer, starts it again."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO

from boltgen.errors import DeviceError, RecordError
from boltgen.measure.protocol import (
    MOST_LINE_BYTES,
    VERSION,
    Answer,
    FromClient,
    FromWorker,
    Greeting,
    Refusal,
    Request,
    Setup,
    from_line,
    to_line,
)
from boltgen.tuning.outcome import Failure, Fault, Outcome

WORKER_COMMAND = (sys.executable, "-m", "boltgen.measure.worker")

_START_SECONDS = 60.0
_LOG_BYTES = 4000


class _SilentError(Exception):
    """No line came in time."""


class _EndedError(Exception):
    """The worker ended, or closed its output, before a whole line."""


class _Process:
    """One worker process, which leads a process group of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile(prefix="boltgen-worker-")  # noqa: SIM115
        self._buffer = b""
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment) if environment is not None else None,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{command[0]} cannot be started: {error.strerror}") from error
        self.number = self._child.pid
        self._selector = selectors.DefaultSelector()
        assert self._child.stdout is not None
        self._selector.register(self._child.stdout, selectors.EVENT_READ)

    def send(self, line: bytes) -> None:
        """Write a line; a worker that has ended is noticed when its answer is read."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(line)
            self._child.stdin.flush()

    def receive(self, seconds: float) -> bytes:
        """The next line of the worker's.

        Raises:
            _SilentError: there was none within `seconds`.
            _EndedError: the worker's output ended.
        """
        assert self._child.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer and len(self._buffer) < MOST_LINE_BYTES:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise _SilentError
            chunk = os.read(self._child.stdout.fileno(), 1 << 16)
            if not chunk:
                raise _EndedError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def stop(self) -> int:
        """End the worker and all that it started; its exit status, as subprocess's.

        One that has closed its output is given a moment to end by itself.
        """
        try:
            self._child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        status = self._child.wait()
        self._selector.close()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return status

    def said(self) -> str:
        """The end of what the worker printed."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _LOG_BYTES))
        return self.log.read().decode(errors="replace")


class Worker:
    """A worker of one device; started at once, and again after it was lost to a candidate.

    `environment` None is this process's.

    Raises:
        DeviceError: the worker does not start, or its device cannot be used.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = WORKER_COMMAND,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._setup, self._environment, self._command = setup, environment, tuple(command)
        self._start_seconds = start_seconds
        self._number = 0
        self._lost: Failure | None = None
        self._process: _Process | None = None
        self.greeting = self._start()

    def _start(self) -> Greeting:
        process = _Process(self._command, self._environment)
        try:
            process.send(to_line(FromClient, self._setup))
            message = from_line(FromWorker, process.receive(self._start_seconds))
        except (_SilentError, _EndedError, RecordError) as error:
            status = process.stop()
            raise DeviceError(
                f"the worker {_how_it_ended(status)} instead of naming its device"
                f"{f': {error}' if isinstance(error, RecordError) else ''}\n{process.said()}"
            ) from error
        if isinstance(message, Greeting) and message.version == VERSION:
            self._process = process
            return message
        process.stop()
        if isinstance(message, Refusal):
            raise DeviceError(f"the device cannot be used: {message.reason}")
        raise DeviceError(f"the worker speaks another version of the protocol than {VERSION}")

    @property
    def process_id(self) -> int | None:
        """Of the worker, which leads a process group of that number; None while there is none."""
        return self._process.number if self._process else None

    def measure(self, request: Request, timeout_s: float) -> Outcome:
        """The outcome of a candidate; whatever it does to the worker is part of that.

        A worker that ends may have been killed from outside, as where memory is short: only a
        candidate that ends two of them is blamed. The request is given the next number.
        """
        try:
            return self._ask(request, timeout_s)
        except _EndedError:
            self._end(Fault.CRASH, "")
        try:
            return self._ask(request, timeout_s)
        except _EndedError:
            return self._end(Fault.CRASH, "the worker {how} while it ran this candidate")

    def _ask(self, request: Request, timeout_s: float) -> Outcome:
        """The outcome of a candidate.

        Raises:
            _EndedError: the worker ended without an answer.
        """
        if self._lost:
            return self._lost
        if self._process is None:
            try:
                self._start()
            except DeviceError as error:
                self._lost = Failure(fault=Fault.DEVICE_LOST, reason=str(error))
                return self._lost
        process = self._process
        assert process is not None
        self._number += 1
        process.send(to_line(FromClient, replace(request, number=self._number)))
        try:
            message = from_line(FromWorker, process.receive(timeout_s))
        except _SilentError:
            return self._end(Fault.TIMEOUT, f"no answer within {timeout_s:g} s")
        except _EndedError:
            raise
        except RecordError as error:
            return self._end(Fault.PROTOCOL, f"the worker printed something else: {error}")
        except BaseException:  # Ctrl-C: an answer to come would be taken for that of the next one
            self.close()
            raise
        if not isinstance(message, Answer) or message.number != self._number:
            return self._end(Fault.PROTOCOL, "the worker answered another question")
        if message.fatal:
            self._end(Fault.CRASH, "")
        return message.outcome

    def _end(self, fault: Fault, reason: str) -> Failure:
        """Stop the process, to be started again by the next candidate."""
        assert self._process is not None
        process, self._process = self._process, None
        how = _how_it_ended(process.stop())
        return Failure(fault=fault, reason=reason.replace("{how}", how), log=process.said())

    def close(self) -> None:
        """Stop the worker; harmless when done twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"was ended by signal {signal.Signals(-status).name}"
    return f"ended with status {status}"
