"""Channels to workers, which exchange lines and files; and a channel to a local process.

A worker on another machine needs a channel that copies the files which a local one only names.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from boltgen.errors import DeviceError
from boltgen.measure.lines import MOST_LINE_BYTES

_LOG_BYTES = 4000


class SilentError(Exception):
    """No line came within the time limit."""


class EndedError(Exception):
    """The worker ended or closed its output before a complete line."""


class Channel(Protocol):
    """A connection to a started worker."""

    @property
    def process_id(self) -> int | None:
        """The process ID of a local worker, which leads a process group with this number."""
        ...

    def send(self, line: bytes) -> None:
        """Send a line; if the worker has ended, `receive` reports it."""
        ...

    def receive(self, seconds: float) -> bytes:
        """Return the worker's next line.

        Raises:
            SilentError: no line came within `seconds`.
            EndedError: the worker's output ended.
        """
        ...

    def send_file(self, path: Path) -> str:
        """Send a file to the worker; return its path on the worker's machine.

        Raises:
            EndedError: the worker cannot be reached.
        """
        ...

    def stop(self) -> str:
        """End the worker and all processes that it started; return how it ended, in words."""
        ...

    def said(self) -> str:
        """Return the last part of the worker's log."""
        ...


# Starts a worker; raises DeviceError if it cannot.
OpenChannel: TypeAlias = Callable[[], Channel]


def local_worker(
    command: str | Sequence[str], environment: Mapping[str, str] | None = None
) -> OpenChannel:
    """Return a starter of workers on this machine; `environment` None is this process's.

    `command` is the name of a Python module, or a program with its arguments.
    """
    words = (sys.executable, "-m", command) if isinstance(command, str) else tuple(command)
    return partial(LocalChannel, words, environment)


class LocalChannel:
    """A channel to a local process, which leads a process group and sees the same files."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="boltgen-worker-")  # noqa: SIM115
        self._buffer = b""
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment) if environment is not None else None,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{command[0]} cannot be started: {error.strerror}") from error
        self.process_id = self._child.pid
        self._selector = selectors.DefaultSelector()
        assert self._child.stdout is not None
        self._selector.register(self._child.stdout, selectors.EVENT_READ)

    def send(self, line: bytes) -> None:
        """Send a line; if the worker has ended, `receive` reports it."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(line)
            self._child.stdin.flush()

    def receive(self, seconds: float) -> bytes:
        """Return the worker's next line.

        Raises:
            SilentError: no line came within `seconds`.
            EndedError: the worker's output ended.
        """
        assert self._child.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer and len(self._buffer) < MOST_LINE_BYTES:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise SilentError
            chunk = os.read(self._child.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EndedError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def send_file(self, path: Path) -> str:
        """Return the path itself: the worker sees the same files."""
        return str(path)

    def stop(self) -> str:
        """End the worker and all processes that it started; return how it ended, in words.

        One that has closed its output is given a moment to end by itself. Harmless when done twice.
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
        return _how_it_ended(status)

    def said(self) -> str:
        """Return the last part of the worker's log."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_BYTES))
        return self._log.read().decode(errors="replace")


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"was ended by signal {signal.Signals(-status).name}"
    return f"ended with status {status}"
