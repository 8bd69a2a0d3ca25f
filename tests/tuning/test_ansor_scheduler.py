"""Ansor's scheduler and its objectives: which task has the next trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from boltgen.errors import BoltgenError
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.session import ansor_scheduler as gradient
from boltgen.tuning.session.ansor_scheduler import Gradient
from boltgen.tuning.session.objectives import Latencies, Objective, Speedup, Total, objective_of
from boltgen.tuning.session.scheduler import TaskState, kind_of

GEMM = Workload.of(Gemm(m=1024, n=1024, k=1024))
CONV = Workload.of(Conv2d(n=8, h=28, w=28, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1)))


def task(*history: tuple[int, float | None], uses: tuple[float, ...] = (1.0,), **more) -> TaskState:
    """A task that had so many trials when it had reached each time."""
    trials, times = zip(*history, strict=True) if history else ((), ())
    workload = more.pop("workload", GEMM)
    return TaskState(
        kind=kind_of(workload),
        flops=workload.flops,
        uses=uses,
        expected_us=more.pop("expected_us", 10.0),
        trials=trials[-1] if trials else 0,
        history_us=times,
        history_trials=trials,
        exhausted=more.pop("exhausted", False),
    )


def chosen(tasks: list[TaskState], objective: Objective | None = None, **more) -> int | None:
    """Whom most of many decisions name: one in twenty is any."""
    scheduler = Gradient(objective, **more)
    found = Counter(scheduler.next_task(tasks) for _ in range(200))
    (most, count), *_ = found.most_common()
    assert count > 160
    return most


def test_everyone_has_one_trial_first_and_the_exhausted_none() -> None:
    assert Gradient().next_task([]) is None
    assert chosen([task((0, None), (4, 5.0)), task()]) == 1
    assert chosen([task((0, None), (4, 5.0)), task(exhausted=True)]) == 0
    assert chosen([task(exhausted=True)]) is None


def test_what_got_faster_lately_goes_on() -> None:
    still = task((0, None), (4, 20.0), (8, 20.0))
    faster = task((0, None), (4, 60.0), (8, 20.0))
    assert chosen([still, faster]) == 1
    assert chosen([faster, still]) == 0


def test_what_runs_more_often_goes_on() -> None:
    once, often = (task((0, None), (8, 20.0), uses=(uses,)) for uses in (1.0, 5.0))
    assert chosen([once, often]) == 1


def test_few_trials_promise_more() -> None:
    assert chosen([task((0, None), (64, 20.0)), task((0, None), (8, 20.0))]) == 1


def test_a_task_that_is_behind_tasks_like_it_promises_more() -> None:
    small = Workload.of(Gemm(m=512, n=1024, k=1024))
    like = task((0, None), (64, 10.0))
    behind = task((0, None), (64, 20.0), workload=small)  # a quarter of the rate
    alone = task((0, None), (64, 20.0), workload=CONV)
    assert chosen([alone, behind, like]) == 1


def test_a_task_that_gets_no_faster_is_left_alone() -> None:
    stuck = task((0, None), (4, 90.0), (40, 90.0))
    other = task((0, None), (4, 3.0), (8, 1.0))
    assert chosen([stuck, other]) == 0
    assert chosen([stuck, other], patience=36) == 1
    assert chosen([stuck], patience=36) is None


def test_a_model_whose_latency_is_kept_has_no_trials() -> None:
    fine = task((0, None), (8, 900.0), uses=(1.0, 0.0))
    late = task((0, None), (8, 20.0), uses=(0.0, 1.0))
    assert chosen([fine, late]) == 0
    assert chosen([fine, late], Latencies((1000.0, 10.0))) == 1
    # Where all are kept, trials follow the time.
    assert chosen([fine, late], Latencies((1000.0, 30.0))) == 0


def test_a_speedup_is_of_each_model() -> None:
    """A microsecond of a fast model counts more, as its share of the model's time does."""
    slow = task((0, None), (8, 100.0), (16, 80.0), uses=(1.0, 0.0), workload=CONV)
    fast = task((0, None), (8, 20.0), (16, 10.0), uses=(0.0, 1.0))
    assert chosen([slow, fast], Total()) == 0
    assert chosen([slow, fast], Speedup()) == 1


def test_a_choice_in_twenty_is_any(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [task((0, None), (8, 100.0)), task((0, None), (8, 1.0))]
    scheduler = Gradient(seed=3)
    others = sum(scheduler.next_task(tasks) == 1 for _ in range(4000))
    assert 60 < others < 140  # of 4,000, 200 are any, and half of them this one
    again = [Gradient(seed=3).next_task(tasks) for _ in range(2)]
    assert again[0] == again[1]
    monkeypatch.setattr(gradient, "_ANY", 0.0)
    assert {Gradient().next_task(tasks) for _ in range(50)} == {0}


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        (Total(), lambda a, b: a + b),
        (Latencies((50.0, 60.0)), lambda a, b: max(a - 50.0, 0.0) + max(b - 60.0, 0.0)),
        (Speedup(), lambda a, b: -((100.0 / a * 100.0 / b) ** 0.5)),
    ],
    ids=["total", "latencies", "speedup"],
)
def test_slopes_are_those_of_the_function(
    objective: Objective, value: Callable[[float, float], float]
) -> None:
    step = 1e-4
    by_steps = [
        (value(80.0 + step, 40.0) - value(80.0, 40.0)) / step,
        (value(80.0, 40.0 + step) - value(80.0, 40.0)) / step,
    ]
    assert objective.slopes([80.0, 40.0], [100.0, 100.0]) == pytest.approx(by_steps, rel=1e-4)


def test_objectives_by_name() -> None:
    assert isinstance(objective_of("total"), Total)
    assert isinstance(objective_of("speedup"), Speedup)
    assert objective_of("latency:5ms,800us,1.5s") == Latencies((5000.0, 800.0, 1.5e6))
    for wrong, named in (
        ("fast", "'fast'; there are total, speedup, and latency:"),
        ("latency", "'latency'"),
        ("latency:5", "'5'"),
        ("latency:0ms", "'0ms'"),
        ("latency:5ms,", "''"),
    ):
        with pytest.raises(BoltgenError, match=named):
            objective_of(wrong)


def test_a_state_has_its_times() -> None:
    begun = task((0, None), (4, 7.0))
    assert (begun.best_us, begun.time_us) == (7.0, 7.0)
    assert (task((0, None)).best_us, task((0, None)).time_us) == (None, 10.0)
    assert kind_of(Workload.of(Gemm(m=8, n=8, k=8))) == kind_of(GEMM) != kind_of(CONV)
