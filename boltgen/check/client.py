"""Run launches in worker processes, each kernel in one worker; restart a worker that dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue

from boltgen.build.progress import Reporter
from boltgen.check.protocol import Job, Ready, Setup, Verdict
from boltgen.errors import DeviceError
from boltgen.measure.channel import Channel, OpenChannel, local_worker
from boltgen.measure.conversation import Conversation, LostError, ask
from boltgen.measure.lines import to_line

WORKER = "boltgen.check.worker"
# Seconds for a launch with its oracle: the virtual GPU itself ends a launch that hangs, and says
# where.
_MOST_SECONDS = 300.0
# Seconds until the worker has loaded the virtual GPU and the library.
_START_SECONDS = 120.0


class _Worker:
    """A worker process, started by the first job and again by the next job after its death."""

    def __init__(self, setup: Setup, open_channel: OpenChannel) -> None:
        self._setup = setup
        self._conversation = Conversation(open_channel, self._greet)
        self.close = self._conversation.stop

    def judge(self, job: Job) -> Verdict:
        """Return the verdict of a launch; the death of the worker becomes part of the verdict."""
        started = time.monotonic()
        try:
            verdict = self._conversation.ask(partial(_line, job), Verdict, _MOST_SECONDS)
        except LostError as lost:
            seconds = round(time.monotonic() - started, 3)
            return Verdict(wrong=str(lost), worst_error=None, seconds=seconds)
        assert isinstance(verdict, Verdict)
        return verdict

    def _greet(self, channel: Channel) -> None:
        try:
            ask(channel, partial(_line, self._setup), Ready, _START_SECONDS)
        except LostError as lost:
            raise DeviceError(
                f"the process that is to check {self._setup.library} {lost.how} before it began\n"
                f"{lost.said}"
            ) from lost


def _line(message: Setup | Job, _: Channel) -> bytes:
    return to_line(type(message), message)


def run_launches(
    setup: Setup,
    kernels: Mapping[str, Sequence[Job]],
    *,
    workers: int,
    reporter: Reporter,
    open_channel: OpenChannel | None = None,
) -> dict[str, list[Verdict]]:
    """Return the verdicts on each kernel's launches, in the order of the launches.

    `open_channel` starts a worker, on this machine by default.

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
        worker = _Worker(setup, open_channel or local_worker(WORKER))
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
