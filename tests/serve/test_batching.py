"""The queue of a model, with a run that the test holds, and a clock that it moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import Queue

import numpy as np
import pytest

from boltgen.errors import BusyError, DeadlineError, DeviceError, NotReadyError
from boltgen.serve.batching import Batcher, BatchLimits

PATIENCE_S = 60


class Held:
    """Doubles its input, each time when the test says so."""

    def __init__(self) -> None:
        self.began: Queue[int] = Queue()
        self._go = threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, inputs):
        self.began.put(len(inputs["x"]))
        assert self._go.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            raise self.error
        return {"y": 2 * inputs["x"]}

    def go(self, times: int = 1) -> None:
        self._go.release(times)

    def rows(self) -> int:
        """Those of the next run to begin."""
        return self.began.get(timeout=PATIENCE_S)


class Heard:
    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    def waiting(self, requests: int) -> None:
        pass

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        self.runs.append((requests, rows))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A queue with one worker, which is in a run of one row when the test begins."""

    def __init__(self, **limits: int) -> None:
        self.run, self.heard, self.clock = Held(), Heard(), Clock()
        self.batcher = Batcher(
            [self.run], BatchLimits(**limits), self.heard, name="model", clock=self.clock
        )
        self.first = self.ask(1, form=None)
        assert self.run.rows() == 1

    def ask(self, rows: int, value: float = 1.0, form: object = "form", **more: float):
        answer: Future = Future()
        inputs = {"x": np.full((rows, 2), value)}
        self.batcher.submit(inputs, answer, rows=rows, form=form, **more)
        return answer

    def close(self) -> None:
        self.run.go(1000)
        self.batcher.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(rows=8, queue=4)
    yield made
    made.close()


def test_what_waits_goes_together_and_each_gets_its_own(rig: Rig) -> None:
    answers = [rig.ask(rows, value=rows) for rows in (1, 3, 4)]
    rig.run.go(2)
    assert rig.run.rows() == 8
    for rows, answer in zip((1, 3, 4), answers, strict=True):
        outputs, timing = answer.result(PATIENCE_S)
        np.testing.assert_array_equal(outputs["y"], np.full((rows, 2), 2.0 * rows))
        assert timing.rows == 8
    assert rig.heard.runs == [(1, 1), (3, 8)]


def test_no_more_than_the_model_takes_goes_together(rig: Rig) -> None:
    answers = [rig.ask(rows) for rows in (5, 5, 3)]
    rig.run.go(3)
    assert [rig.run.rows(), rig.run.rows()] == [8, 5]
    assert [answer.result(PATIENCE_S)[1].rows for answer in answers] == [8, 5, 8]


@pytest.mark.parametrize("forms", [("one", "other"), (None, None)])
def test_what_has_other_sizes_or_goes_alone_does(rig: Rig, forms: tuple[object, object]) -> None:
    answers = [rig.ask(1, form=form) for form in forms]
    rig.run.go(3)
    assert [answer.result(PATIENCE_S)[1].rows for answer in answers] == [1, 1]


def test_a_full_queue_refuses_by_name(rig: Rig) -> None:
    answers = [rig.ask(1) for _ in range(4)]
    with pytest.raises(BusyError, match="'model' has 4 requests waiting"):
        rig.ask(1)
    rig.run.go(2)
    for answer in answers:
        answer.result(PATIENCE_S)


def test_what_was_cancelled_does_not_run_and_makes_room(rig: Rig) -> None:
    answers = [rig.ask(1) for _ in range(4)]
    assert all(answer.cancel() for answer in answers[:3])
    last = rig.ask(2)
    rig.run.go(2)
    assert last.result(PATIENCE_S)[1].rows == 3
    assert rig.heard.runs == [(1, 1), (2, 3)]


def test_what_is_too_late_does_not_run(rig: Rig) -> None:
    late, kept = rig.ask(1, timeout_s=0.25), rig.ask(1, timeout_s=2.0)
    rig.clock.now = 1.0
    rig.run.go(2)
    with pytest.raises(DeadlineError, match=r"'model'.*1000\.0 ms"):
        late.result(PATIENCE_S)
    assert kept.result(PATIENCE_S)[1].rows == 1


def test_an_error_is_of_its_own_run_only(rig: Rig) -> None:
    failing = [rig.ask(1), rig.ask(1)]
    rig.run.go()
    rig.first.result(PATIENCE_S)
    assert rig.run.rows() == 2
    for error in (DeviceError("a fault"), ZeroDivisionError()):
        rig.run.error = error
        rig.run.go()
        for answer in failing:
            with pytest.raises(type(error)):
                answer.result(PATIENCE_S)
        failing = [rig.ask(1)]
        rig.run.rows()
    rig.run.error = None
    rig.run.go()
    failing[0].result(PATIENCE_S)


def test_the_oldest_waits_for_others_until_they_are_enough() -> None:
    """The clock stands still: only rows can end the delay, or the end of the queue."""
    rig = Rig(rows=4, queue=8, delay_us=1_000_000)
    rig.run.go()
    answers = [rig.ask(2)]
    rig.first.result(PATIENCE_S)
    answers.append(rig.ask(2))
    assert rig.run.rows() == 4
    rig.run.go()
    for answer in answers:
        assert answer.result(PATIENCE_S)[1].rows == 4
    alone = rig.ask(1)
    rig.run.go(10)
    rig.batcher.close()
    assert alone.result(PATIENCE_S)[1].rows == 1


def test_who_goes_away_while_it_is_held_for_others_holds_nobody() -> None:
    rig = Rig(rows=4, queue=8, delay_us=1_000_000)
    rig.run.go(2)
    rig.first.result(PATIENCE_S)
    gone = rig.ask(1, form="one")
    assert gone.cancel()
    answers = [rig.ask(2, form="other"), rig.ask(2, form="other")]
    for answer in answers:
        assert answer.result(PATIENCE_S)[1].rows == 4
    rig.close()
    assert rig.heard.runs == [(1, 1), (2, 4)]


def test_a_request_is_held_for_others_for_half_of_its_time() -> None:
    rig = Rig(rows=4, queue=8, delay_us=60_000_000)
    rig.run.go(2)
    hurried = rig.ask(1, timeout_s=1.0)
    rig.clock.now = 0.5
    rig.ask(1, form="whatever wakes the worker").cancel()
    assert hurried.result(PATIENCE_S)[1].rows == 1
    rig.close()


def test_a_closed_queue_answers_what_waits_and_takes_no_more(rig: Rig) -> None:
    answers = [rig.ask(1, form=form) for form in range(3)]
    rig.run.go(4)
    rig.batcher.close()
    for answer in answers:
        assert answer.done()
        answer.result()
    with pytest.raises(NotReadyError, match="'model'"):
        rig.ask(1)


def test_workers_run_side_by_side() -> None:
    runs = [Held(), Held()]
    batcher = Batcher(runs, BatchLimits(), Heard(), name="model")
    answers: list[Future] = [Future(), Future()]
    for answer in answers:
        batcher.submit({"x": np.ones((1, 2))}, answer, rows=1, form=None)
    assert [run.rows() for run in runs] == [1, 1]  # both are in a run
    for run in runs:
        run.go()
    for answer in answers:
        answer.result(PATIENCE_S)
    batcher.close()
