"""Run compilers as child processes that end with their build."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

from boltgen.errors import ToolchainError


class Children:
    """Start commands from any thread, and stop all of them together.

    Each child leads its own process group, because nvcc starts cicc and ptxas, which would survive
    nvcc's end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopped

    def run(
        self, command: tuple[str, ...], *, folder: Path, environment: dict[str, str], log: Path
    ) -> int:
        """Run `command` in `folder` with all output to `log`; return its status as subprocess does.

        Raises:
            ToolchainError: the command cannot be started.
        """
        with log.open("wb") as output:
            with self._lock:
                if self._stopped:
                    return -signal.SIGTERM
                try:
                    process = subprocess.Popen(
                        command,
                        cwd=folder,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise ToolchainError(
                        f"{command[0]} cannot be started: {error.strerror}; "
                        "`boltgen doctor` shows what was found"
                    ) from error
                self._running.add(process)
            try:
                return process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
                _kill(process)

    def stop(self) -> None:
        """Kill all children with their descendants, and refuse to start more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
