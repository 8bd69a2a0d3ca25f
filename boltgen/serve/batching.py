"""The queue of one model: requests wait here, are batched, and go through its sessions.

A worker takes a session and the oldest request, then more requests whose rows may be put beside it,
until the batch is full or the oldest has waited long enough. If nothing waits and a run is short,
the thread that has the request runs it.
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

# A worker wakes, and the event loop after it, in some 200 us: a run that is as short is better made
# where the request is. A choice, as the number of sizes whose times are kept.
_SHORT_S = 500e-6
# A run may take longer than the last one did, and nobody watches its request's time meanwhile.
_CAUTION = 20
_MOST_SIZES = 4096

Arrays = Mapping[str, Array]
Sizes = tuple[tuple[str, tuple[int, ...]], ...]
Run = Callable[[Arrays], dict[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batch and of the queue.

    `rows` is the most that one run takes, `delay_us` how long the oldest request waits for others,
    `queue` how many requests may wait.
    """

    rows: int = 1
    delay_us: int = 0
    queue: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The time of a request: seconds in the queue and in the run, and rows of the whole run."""

    queued_s: float
    run_s: float
    rows: int


class Observer(Protocol):
    """Hear of a queue's events; called from its workers and from submitting threads."""

    def waiting(self, requests: int) -> None:
        """Hear how many requests wait."""

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Hear how many requests went through one run together."""


class Answer(Protocol):
    """The receiver of a request's answer: a future of `concurrent.futures` is one.

    Called by whoever submits, and by a worker.
    """

    def cancelled(self) -> bool:
        """Return whether nobody waits for the answer any more."""

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the answer is still wanted; the request runs then."""

    def set_result(self, result: tuple[dict[str, Array], Timing], /) -> None:
        """Take the outputs by name."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Take the reason why there are no outputs."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call `fn` when the answer is there, or cancelled."""


@dataclass(slots=True, eq=False)
class _Job:
    inputs: Arrays
    rows: int
    # Two requests go together if this key is equal; None for a request that goes alone.
    form: object
    deadline: float | None
    since: float
    answer: Answer


class Batcher:
    """The queue and the workers of one model: as many as `runs`, each of which has a session of its
    own.
    """

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
        # The sessions that nobody uses.
        self._runs = list(runs)
        # Seconds of the last run, by sizes.
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
        """Give `answer` a request's outputs later; it can be cancelled until then.

        Requests of equal `form` may be put together, along axis 0 of all their inputs and outputs;
        None marks a request that goes alone.

        Raises:
            BusyError: as many requests as may wait do.
            NotReadyError: the queue is closed.
        """
        now = self._clock()
        job = _Job(inputs, rows, form, None if timeout_s is None else now + timeout_s, now, answer)
        with self._changed:
            if self._closing:
                raise NotReadyError(f"model {self._name!r} takes no more requests: it is unloaded")
            if len(self._jobs) >= self._limits.queue:
                # Cancelled and late requests make room.
                self._forget_the_dead(now)
            if len(self._jobs) >= self._limits.queue:
                raise BusyError(
                    f"model {self._name!r} has {self._limits.queue} requests waiting, which is as "
                    "many as may: try again later"
                )
            if self._limits.delay_us:
                # Whoever holds it for others hears when its client has gone.
                job.answer.add_done_callback(self._wake)
            self._jobs.append(job)
            self._observer.waiting(len(self._jobs))
            self._changed.notify()

    def at_once(
        self, inputs: Arrays, *, rows: int, timeout_s: float | None = None
    ) -> tuple[dict[str, Array], Timing] | None:
        """Run a request in the caller's thread and return its outputs; None if it must be
        submitted.

        That is where requests are held for others, or wait, where all runs are in use, where a run
        of these sizes takes longer than the way to a worker and back, or is not known, and where
        `timeout_s`, the request's time, is not many times as long.

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
        """Stop holding requests for others."""
        with self._changed:
            self._hurrying = True
            self._changed.notify_all()

    def close(self) -> None:
        """Answer all waiting requests, then end the workers; later requests are refused."""
        self.hurry()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()
        with self._changed:
            while len(self._runs) < len(self._workers):  # a caller has one
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
        """Return the next run and its requests; None at the end."""
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
                # Another worker may have been told of what this one left.
                self._changed.notify()
            return run, [job for job in found if self._is_due(job)]

    def _hold_until(self, jobs: Sequence[_Job]) -> float:
        """Return until when requests are held for others: at most half of the time that one has."""
        limits = [job.since + self._limits.delay_us / 1e6 for job in jobs]
        limits += [(job.since + job.deadline) / 2 for job in jobs if job.deadline is not None]
        return min(limits, default=0.0)

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fitting(self, first: _Job, rows: int) -> list[_Job]:
        """Take the requests that may be put beside `first` out of the queue, oldest first."""
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
        """Return whether a request still wants its answer; a request that is too late gets an
        error.
        """
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
            # Ours, not the clients': they hear of it, and the worker lives on.
            _log.exception("model %r: a run ended with an error of boltgen's own", self._name)
            for job in jobs:
                job.answer.set_exception(error)
            return
        self._observer.ran(len(jobs), rows, seconds)
        for job, part in zip(jobs, parts, strict=True):
            timing = Timing(queued_s=began - job.since, run_s=seconds, rows=rows)
            job.answer.set_result((part, timing))

    def _timed(self, run: Run, inputs: Arrays) -> tuple[dict[str, Array], float]:
        """Return a run's outputs, and its seconds; others may use the session then."""
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
