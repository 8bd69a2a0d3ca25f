"""Run launches in worker processes, each kernel in one worker; restart a worker that dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

from boltgen.build.progress import Reporter
from boltgen.check.protocol import (
    MOST_LINE_BYTES,
    READY,
    Job,
    Setup,
    Verdict,
    from_line,
    to_line,
)
from boltgen.errors import DeviceError, RecordError

WORKER_COMMAND = (sys.executable, "-m", "boltgen.check.worker")
# Seconds for a launch with its oracle. The virtual GPU itself ends a launch that hangs, earlier,
# and says where.
_MOST_SECONDS = 300.0
_LOG_BYTES = 2000


class _EndedError(Exception):
    """The worker ended, was silent for too long, or sent something other than a verdict."""


class _Worker:
    """A worker process, started by the first job and again by the next job after its death."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._child: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile(prefix="boltgen-check-")  # noqa: SIM115

    def judge(self, job: Job) -> Verdict:
        """Return the verdict of a launch; the death of the worker becomes part of the verdict."""
        started = time.monotonic()
        try:
            return self._ask(job)
        except _EndedError as error:
            seconds = round(time.monotonic() - started, 3)
            return Verdict(wrong=str(error), worst_error=None, seconds=seconds)

    def _ask(self, job: Job) -> Verdict:
        child = self._child or self._start()
        line = _answer(child, job)
        try:
            verdict: Verdict = from_line(Verdict, line)
        except RecordError as error:
            how = self.close()
            raise _EndedError(f"the process that ran the kernel {how}: {error}") from error
        return verdict

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            child = subprocess.Popen(
                WORKER_COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{WORKER_COMMAND[0]} cannot be started: {error.strerror}") from error
        self._child = child
        if _answer(child, self._setup).strip() != READY:
            how = self.close()
            raise DeviceError(
                f"the process that is to check {self._setup.library} {how} before it began\n"
                f"{self._said()}"
            )
        return child

    def close(self) -> str:
        """End the process and return how it ended, in words. A second call is harmless."""
        child, self._child = self._child, None
        if child is None:
            return "was not running"
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        try:
            status = child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            _kill(child)
            status = child.wait()
        child.stdout.close()
        if status < 0:
            return f"was ended by signal {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def _said(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_BYTES))
        return self._log.read().decode(errors="replace")


def _answer(child: subprocess.Popen[bytes], message: Setup | Job) -> bytes:
    """Read the worker's answer; return empty bytes if it ended, or was killed for its silence."""
    assert child.stdin is not None and child.stdout is not None
    timer = threading.Timer(_MOST_SECONDS, _kill, (child,))
    timer.start()
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(to_line(message))
            child.stdin.flush()
        return child.stdout.readline(MOST_LINE_BYTES)
    finally:
        timer.cancel()


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def run_launches(
    setup: Setup,
    kernels: Mapping[str, Sequence[Job]],
    *,
    workers: int,
    reporter: Reporter,
) -> dict[str, list[Verdict]]:
    """Return the verdicts on each kernel's launches, in the order of the launches.

    Raises:
        DeviceError: a worker cannot be started, or cannot load the library.
    """
    waiting: SimpleQueue[str] = SimpleQueue()
    stopping = threading.Event()
    for symbol in kernels:
        waiting.put(symbol)
    verdicts: dict[str, list[Verdict]] = {}
    reporter.start("checking", len(kernels))

    def work() -> None:
        worker = _Worker(setup)
        try:
            while not stopping.is_set():
                symbol = waiting.get_nowait()
                verdicts[symbol] = [worker.judge(job) for job in kernels[symbol]]
                reporter.step(symbol)
        except Empty:
            pass
        finally:
            worker.close()

    count = max(1, min(workers, len(kernels)))
    try:
        with ThreadPoolExecutor(max_workers=count) as pool:
            futures = [pool.submit(work) for _ in range(count)]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # also Ctrl-C: the pool then waits for one kernel at most
                stopping.set()
                raise
    finally:
        reporter.end()
    return verdicts
