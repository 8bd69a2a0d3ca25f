"""The queue of one model: requests wait, are batched, and run in the model's sessions.

A worker takes a session and the oldest request, then compatible requests, until the batch is full
or the oldest request has waited long enough. If no request waits and a run is short, the submitting
thread runs its request itself.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from boltgen.errors import BoltgenError, BusyError, DeadlineError, NotReadyError
from boltgen.serve.tensors import Array

_log = logging.getLogger("boltgen.serve")

# To wake a worker and then the event loop takes some 200 us, so a short run is faster in the
# submitting thread. A choice, as is the number of sizes whose times are stored.
_SHORT_S = 500e-6
# A run may take longer than the last run of these sizes, and no timer watches it in this thread; so
# a request's time must be this many times longer.
_CAUTION = 20
_MOST_SIZES = 4096

Arrays = Mapping[str, Array]
Sizes = tuple[tuple[str, tuple[int, ...]], ...]
Run = Callable[[Arrays], dict[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batch and of the queue.

    `rows` is the most rows of one run. `delay_us` is how long the oldest request waits for others.
    `queue` is the most waiting requests.
    """

    rows: int = 1
    delay_us: int = 0
    queue: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The seconds of a request in the queue and in the run, and the rows of the whole run."""

    queued_s: float
    run_s: float
    rows: int


class Observer(Protocol):
    """Receives a queue's events; workers and submitting threads call it."""

    def waiting(self, requests: int) -> None:
        """Note the number of waiting requests."""

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Note a run of `requests` requests together, and its seconds."""


class Answer(Protocol):
    """The receiver of a request's answer, such as a future of `concurrent.futures`.

    The submitting thread and a worker call it.
    """

    def cancelled(self) -> bool:
        """Return whether the client no longer waits for the answer."""

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the client still waits; if so, the request starts."""

    def set_result(self, result: tuple[dict[str, Array], Timing], /) -> None:
        """Receive the outputs by name, and the timing."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Receive the error of a request that failed."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call `fn` when the answer is set or cancelled."""


@dataclass(slots=True, eq=False)
class _Job:
    inputs: Arrays
    rows: int
    # Requests with equal keys can share a run; a request with None runs alone.
    form: object
    deadline: float | None
    since: float
    answer: Answer


class Batcher:
    """The queue and the workers of one model: one worker per run function, with its own session."""

    def __init__(
        self,
        runs: Sequence[Run],
        limits: BatchLimits,
        observer: Observer,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._observer = observer
        self._name = name
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        # The run functions whose sessions are free.
        self._runs = list(runs)
        # Seconds of the last run of these sizes.
        self._known_s: dict[Sizes, float] = {}
        self._changed = threading.Condition()
        self._closing = self._hurrying = False
        self._workers = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(len(runs))
        ]
        for worker in self._workers:
            worker.start()

    def submit(
        self,
        inputs: Arrays,
        answer: Answer,
        *,
        rows: int,
        form: object,
        timeout_s: float | None = None,
    ) -> None:
        """Enqueue a request whose outputs `answer` receives later; until then it can be cancelled.

        Requests with equal `form` may share a run, concatenated along axis 0 of all inputs and
        outputs. A request with None runs alone.

        Raises:
            BusyError: the queue is full.
            NotReadyError: the queue is closed.
        """
        now = self._clock()
        job = _Job(inputs, rows, form, None if timeout_s is None else now + timeout_s, now, answer)
        with self._changed:
            if self._closing:
                raise NotReadyError(f"model {self._name!r} takes no more requests: it is unloaded")
            if len(self._jobs) >= self._limits.queue:
                # Removing cancelled and late requests makes room.
                self._forget_the_dead(now)
            if len(self._jobs) >= self._limits.queue:
                raise BusyError(
                    f"model {self._name!r} has {self._limits.queue} requests waiting, which is as "
                    "many as may: try again later"
                )
            if self._limits.delay_us:
                # A worker that holds the request for others learns that its client has gone.
                job.answer.add_done_callback(self._wake)
            self._jobs.append(job)
            self._observer.waiting(len(self._jobs))
            self._changed.notify()

    def at_once(
        self, inputs: Arrays, *, rows: int, timeout_s: float | None = None
    ) -> tuple[dict[str, Array], Timing] | None:
        """Run a request in the caller's thread; return its outputs, None if it must be submitted.

        It must be submitted if requests are held for others, if requests wait, if no session is
        free, if runs of these sizes are not known to be short, or if `timeout_s`, the request's
        time, is short.

        Raises:
            BoltgenError: the run failed.
        """
        with self._changed:
            known_s = self._known_s.get(_sizes(inputs), math.inf)
            is_free = self._runs and not self._jobs and not self._closing
            most_s = _SHORT_S if timeout_s is None else min(_SHORT_S, timeout_s / _CAUTION)
            if not is_free or self._limits.delay_us or known_s > most_s:
                return None
            run = self._runs.pop()
        outputs, seconds = self._timed(run, inputs)
        self._observer.ran(1, rows, seconds)
        return outputs, Timing(queued_s=0.0, run_s=seconds, rows=rows)

    def hurry(self) -> None:
        """Run waiting requests without waiting for others."""
        with self._changed:
            self._hurrying = True
            self._changed.notify_all()

    def close(self) -> None:
        """Answer all waiting requests, then end the workers; reject later requests."""
        self.hurry()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        with self._changed:
            while len(self._runs) < len(self._workers):  # a caller of `at_once` still uses one
                self._changed.wait()

    def _work(self) -> None:
        while (taken := self._next_jobs()) is not None:
            run, jobs = taken
            if jobs:
                self._run(run, jobs)
            else:
                self._give_back(run)

    def _give_back(self, run: Run) -> None:
        with self._changed:
            self._runs.append(run)
            if self._jobs or self._closing:
                self._changed.notify_all()

    def _next_jobs(self) -> tuple[Run, list[_Job]] | None:
        """Return the next run function and its requests; None after the last request."""
        with self._changed:
            while not self._jobs or not self._runs:
                if self._closing and not self._jobs:
                    return None
                self._changed.wait()
            run = self._runs.pop()
            first = self._jobs.popleft()
            found = [first]
            while first.form is not None:
                found += self._fitting(first, sum(job.rows for job in found))
                found = [job for job in found if not job.answer.cancelled()]
                left_s = self._hold_until(found) - self._clock()
                is_full = sum(job.rows for job in found) >= self._limits.rows
                if not found or is_full or left_s <= 0 or self._hurrying:
                    break
                self._observer.waiting(len(self._jobs))
                self._changed.wait(left_s)
            self._observer.waiting(len(self._jobs))
            if self._jobs:
                # A notification for the remaining requests may have gone to this worker.
                self._changed.notify()
            return run, [job for job in found if self._is_due(job)]

    def _hold_until(self, jobs: Sequence[_Job]) -> float:
        """Return the time until which requests are held: at most half of any request's time."""
        limits = [job.since + self._limits.delay_us / 1e6 for job in jobs]
        limits += [(job.since + job.deadline) / 2 for job in jobs if job.deadline is not None]
        return min(limits, default=0.0)

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fitting(self, first: _Job, rows: int) -> list[_Job]:
        """Remove the requests that can share a run with `first` from the queue, oldest first."""
        taken: list[_Job] = []
        kept: deque[_Job] = deque()
        for job in self._jobs:
            if job.form == first.form and rows + job.rows <= self._limits.rows:
                taken.append(job)
                rows += job.rows
            else:
                kept.append(job)
        self._jobs = kept
        return taken

    def _is_due(self, job: _Job) -> bool:
        """Return whether a request still needs its answer; a late request gets an error."""
        if not job.answer.set_running_or_notify_cancel():
            return False
        waited_s = self._clock() - job.since
        if job.deadline is not None and self._clock() >= job.deadline:
            job.answer.set_exception(
                DeadlineError(
                    f"model {self._name!r}: the request's time was over after "
                    f"{waited_s * 1e3:.1f} ms in the queue"
                )
            )
            return False
        return True

    def _forget_the_dead(self, now: float) -> None:
        kept: deque[_Job] = deque()
        for job in self._jobs:
            is_late = job.deadline is not None and now >= job.deadline
            if (job.answer.cancelled() or is_late) and not self._is_due(job):
                continue
            kept.append(job)
        self._jobs = kept

    def _run(self, run: Run, jobs: Sequence[_Job]) -> None:
        began = self._clock()
        rows = sum(job.rows for job in jobs)
        try:
            outputs, seconds = self._timed(run, _together([job.inputs for job in jobs]))
            parts = _apart(outputs, [job.rows for job in jobs])
        except BoltgenError as error:
            for job in jobs:
                job.answer.set_exception(error)
            return
        except Exception as error:
            # A fault of boltgen's: the clients get the error, and the worker continues.
            _log.exception("model %r: a run ended with an error of boltgen's own", self._name)
            for job in jobs:
                job.answer.set_exception(error)
            return
        self._observer.ran(len(jobs), rows, seconds)
        for job, part in zip(jobs, parts, strict=True):
            timing = Timing(queued_s=began - job.since, run_s=seconds, rows=rows)
            job.answer.set_result((part, timing))

    def _timed(self, run: Run, inputs: Arrays) -> tuple[dict[str, Array], float]:
        """Return a run's outputs and its seconds; the session is free again."""
        began = self._clock()
        try:
            outputs = run(inputs)
        finally:
            self._give_back(run)
        seconds = self._clock() - began
        with self._changed:
            if len(self._known_s) >= _MOST_SIZES:
                self._known_s.clear()
            self._known_s[_sizes(inputs)] = seconds
        return outputs, seconds


def _sizes(inputs: Arrays) -> Sizes:
    return tuple((name, array.shape) for name, array in inputs.items())


def _together(inputs: Sequence[Arrays]) -> Arrays:
    if len(inputs) == 1:
        return inputs[0]
    return {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}


def _apart(outputs: dict[str, Array], rows: Sequence[int]) -> list[dict[str, Array]]:
    if len(rows) == 1:
        return [outputs]
    ends = np.cumsum(rows)
    return [
        {name: array[end - count : end] for name, array in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]
