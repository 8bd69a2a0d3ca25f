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


class Instant:
    """Doubles its input at once, by a clock that it moves."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.threads: list[str] = []

    def __call__(self, inputs):
        self.threads.append(threading.current_thread().name)
        self.clock.now += self.seconds
        return {"y": 2 * inputs["x"]}


def asked(batcher: Batcher, rows: int = 1) -> Future:
    answer: Future = Future()
    batcher.submit({"x": np.ones((rows, 2))}, answer, rows=rows, form=None)
    answer.result(PATIENCE_S)
    return answer


@pytest.mark.parametrize(("seconds", "is_short"), [(1e-4, True), (1e-2, False)])
def test_a_short_run_of_known_sizes_is_made_by_the_caller(seconds: float, is_short: bool) -> None:
    clock, heard = Clock(), Heard()
    run = Instant(clock, seconds)
    batcher = Batcher([run], BatchLimits(rows=4), heard, name="model", clock=clock)
    inputs = {"x": np.ones((1, 2))}
    assert batcher.at_once(inputs, rows=1) is None, "nobody knows how long it takes"
    asked(batcher)
    found = batcher.at_once(inputs, rows=1)
    assert (found is not None) == is_short
    assert batcher.at_once({"x": np.ones((2, 2))}, rows=2) is None, "other sizes"
    asked(batcher, rows=2)
    batcher.close()
    if found is not None:
        outputs, timing = found
        assert outputs["y"].tolist() == [[2.0, 2.0]]
        assert (timing.queued_s, timing.run_s, timing.rows) == (0.0, pytest.approx(seconds), 1)
        assert run.threads == ["model-0", threading.current_thread().name, "model-0"]
        assert heard.runs == [(1, 1), (1, 1), (1, 2)]
    assert batcher.at_once(inputs, rows=1) is None, "it is closed"


@pytest.mark.parametrize(("timeout_s", "is_patient"), [(1e-3, False), (1e-2, True)])
def test_no_caller_runs_what_may_be_too_late(timeout_s: float, is_patient: bool) -> None:
    clock = Clock()
    batcher = Batcher([Instant(clock, 1e-4)], BatchLimits(), Heard(), name="model", clock=clock)
    asked(batcher)
    found = batcher.at_once({"x": np.ones((1, 2))}, rows=1, timeout_s=timeout_s)
    assert (found is not None) == is_patient
    batcher.close()


def test_no_caller_runs_what_others_wait_for() -> None:
    clock = Clock()
    run, held = Instant(clock, 1e-4), Held()
    batcher = Batcher(
        [lambda inputs: (held if inputs["x"].shape[0] > 1 else run)(inputs)],
        BatchLimits(),
        Heard(),
        name="model",
        clock=clock,
    )
    asked(batcher)
    inputs = {"x": np.ones((1, 2))}
    assert batcher.at_once(inputs, rows=1) is not None
    answer: Future = Future()
    batcher.submit({"x": np.ones((2, 2))}, answer, rows=2, form=None)
    assert held.rows() == 2
    assert batcher.at_once(inputs, rows=1) is None, "its only session is in use"
    held.go()
    answer.result(PATIENCE_S)
    batcher.close()


def test_a_worker_waits_for_the_session_that_a_caller_has() -> None:
    clock, began, go = Clock(), threading.Event(), threading.Event()
    threads: list[str] = []

    def run(inputs):
        threads.append(threading.current_thread().name)
        if threading.current_thread().name == "caller":
            began.set()
            assert go.wait(PATIENCE_S)
        return {"y": inputs["x"]}

    batcher = Batcher([run], BatchLimits(), Heard(), name="model", clock=clock)
    asked(batcher)
    inputs = {"x": np.ones((1, 2))}
    caller = threading.Thread(
        target=batcher.at_once, args=(inputs,), kwargs={"rows": 1}, name="caller"
    )
    caller.start()
    assert began.wait(PATIENCE_S)
    answer: Future = Future()
    batcher.submit(inputs, answer, rows=1, form=None)
    assert not answer.done()
    go.set()
    caller.join(PATIENCE_S)
    answer.result(PATIENCE_S)
    assert threads == ["model-0", "caller", "model-0"]
    batcher.close()


def test_closing_waits_for_the_session_that_a_caller_has() -> None:
    clock, began, go = Clock(), threading.Event(), threading.Event()

    def run(inputs):
        if threading.current_thread().name == "caller":
            began.set()
            assert go.wait(PATIENCE_S)
        return {"y": inputs["x"]}

    batcher = Batcher([run], BatchLimits(), Heard(), name="model", clock=clock)
    asked(batcher)
    caller = threading.Thread(
        target=batcher.at_once, args=({"x": np.ones((1, 2))},), kwargs={"rows": 1}, name="caller"
    )
    caller.start()
    assert began.wait(PATIENCE_S)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    caller.join(PATIENCE_S)


def test_an_error_of_a_caller_s_run_is_the_caller_s_and_the_session_is_free_again() -> None:
    clock = Clock()
    fails = [False]

    def run(inputs):
        if fails[0]:
            raise DeviceError("the device is gone")
        return {"y": inputs["x"]}

    batcher = Batcher([run], BatchLimits(), Heard(), name="model", clock=clock)
    asked(batcher)
    fails[0] = True
    inputs = {"x": np.ones((1, 2))}
    with pytest.raises(DeviceError, match="gone"):
        batcher.at_once(inputs, rows=1)
    fails[0] = False
    asked(batcher)
    batcher.close()
