"""TVM's own kernels in a session: trials beside boltgen's, in one budget and one database."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.errors import DatabaseError
from boltgen.ir.outcome import DeviceKind, Failure, Fault, Outcome, Timing
from boltgen.tuning.database.database import Database
from boltgen.tuning.rest.tasks import BUILT_IN, RestResult, RestTrial, fastest, summary
from boltgen.tuning.session.ansor_scheduler import Gradient
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.scheduler import TaskState
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import A100, NOON, TOOLS
from tests.tuning.sessions import LOST, Heard, session

NOW = f"{BUILT_IN}0123"
BENCH = (A100, TOOLS)
WRONG = Failure(fault=Fault.WRONG_RESULT, reason="argument 1 is off")


def rest_trial(config: str, task: str = "t") -> RestTrial:
    return RestTrial(name="softmax", task=task, config=config)


class FakeSearch:
    """Proposes the built-in schedule, then "1", "2", and so on up to `most`."""

    def __init__(self, task: str, uses: float, most: int = 1000) -> None:
        self.task = task
        self._uses = uses
        self._left = [NOW, *map(str, range(1, most))]
        self._known: dict[str, Outcome] = {}
        self._trials = 0

    def resume(self, known: Mapping[str, Outcome]) -> None:
        self._known |= known
        self._left = [config for config in self._left if config not in known]

    def propose(self, count: int) -> list[RestTrial]:
        given, self._left = self._left[:count], self._left[count:]
        self._trials += len(given)
        return [rest_trial(config, self.task) for config in given]

    def observe(self, trial: RestTrial, outcome: Outcome) -> None:
        self._known[trial.config] = outcome

    @property
    def state(self) -> TaskState:
        times = [each.median_us for each in self._known.values() if isinstance(each, Timing)]
        return TaskState(
            kind=self.task,
            flops=0,
            uses=(self._uses,),
            expected_us=50.0,
            trials=self._trials,
            history_us=(None, min(times, default=None)),
            history_trials=(0, self._trials),
            exhausted=not self._left,
        )

    @property
    def result(self) -> RestResult:
        return summary("softmax", self._uses, self._known, NOW)


class FakeRest:
    """The n-th schedule takes 100 us over n, the built-in one 60 us."""

    toolchain = f"{TOOLS}; TVM 0"

    def __init__(self, *searches: FakeSearch, lost: bool = False) -> None:
        self.searches = searches
        self.trials: list[RestTrial] = []
        self._lost = lost

    def run(self, trials: Sequence[RestTrial]) -> Generator[tuple[RestTrial, Outcome], None, None]:
        for trial in trials:
            self.trials.append(trial)
            us = 60.0 if trial.config == NOW else 100.0 / int(trial.config)
            yield trial, LOST if self._lost else Timing.exact(us)

    def close(self) -> None:
        """Nothing to stop."""


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "records.sqlite")


def test_trials_are_divided_by_time_among_boltgens_tasks_and_tvms(database: Database) -> None:
    """Of two kernels alike, the one that runs ten times as often gets more."""
    often, seldom = FakeSearch("a", 10.0), FakeSearch("b", 1.0)
    bench, rest, heard = FakeBench(), FakeRest(often, seldom), Heard()
    options = SessionOptions(scheduler=Gradient())
    report = session(
        bench, database, Budget(trials=200), rest=rest, options=options, observer=heard
    ).run()
    assert report.measured == 200 == len(bench.trials) + len(rest.trials)
    assert len(heard.bests) == 200
    assert bench.trials and all(result.best for result in report.results)
    counts = [sum(each.task == task for each in rest.trials) for task in "ab"]
    assert counts[0] > 1.5 * counts[1] > 0
    assert [each.built_in_us for each in report.rest] == [60.0, 60.0]
    assert report.rest[0].best_us == 100.0 / (counts[0] - 1), "the last one tried"
    assert report.model_us is not None, "of boltgen's products alone"


def test_what_is_in_the_database_is_not_measured_again(database: Database) -> None:
    first = FakeRest(FakeSearch("a", 100.0, most=9))
    session(FakeBench(), database, rest=first).run()
    assert len(first.trials) == 9
    again = FakeRest(FakeSearch("a", 100.0, most=12))
    bench = FakeBench()
    report = session(bench, database, rest=again).run()
    assert [each.config for each in again.trials] == ["9", "10", "11"]
    assert not bench.trials
    assert report.measured == 3
    assert report.rest[0].timed == 12
    # Another TVM generates other kernels.
    other = FakeRest(FakeSearch("a", 100.0, most=2))
    other.toolchain = f"{TOOLS}; TVM 1"  # type: ignore[misc]
    session(FakeBench(), database, rest=other).run()
    assert len(other.trials) == 2


def test_a_device_that_is_lost_ends_the_session(database: Database) -> None:
    rest = FakeRest(FakeSearch("a", 1.0), lost=True)
    report = session(FakeBench(), database, rest=rest).run()
    assert report.stopped == f"the device was lost: {LOST.reason}"
    assert (len(rest.trials), report.measured) == (1, 0)
    assert not database.rest.outcomes("a", (A100, rest.toolchain))


def test_a_schedule_ships_that_is_faster_than_todays_built_in_one() -> None:
    assert fastest({NOW: 2.0, "a": 1.0, "b": 1.5}, NOW) == "a"
    assert fastest({NOW: 1.0, "a": 1.0}, NOW) == NOW
    assert fastest({NOW: 1.0, f"{BUILT_IN}of another version": 0.5}, NOW) == NOW
    assert fastest({"a": 1.0}, NOW) is None, "nothing is known to be slower"


def test_a_result_counts_times_and_failures() -> None:
    known: dict[str, Outcome] = {NOW: Timing.exact(2.0), "a": Timing.exact(1.0), "b": WRONG}
    found = summary("softmax", 3.0, known, NOW)
    assert (found.built_in_us, found.best_us, found.timed, found.failed) == (2.0, 1.0, 2, 1)
    assert found.best is not None and found.best.startswith("MetaSchedule ")
    assert summary("softmax", 3.0, {}, NOW).best is None


def test_the_newest_outcome_of_the_asked_device_counts(database: Database) -> None:
    vgpu = replace(A100, kind=DeviceKind.VGPU, name="vgpu sm_80")
    other = replace(A100, name="NVIDIA A100-SXM4-80GB")
    add = database.rest.add
    add(rest_trial("a"), Timing.exact(5.0), BENCH, NOON)
    add(rest_trial("a"), Timing.exact(3.0), BENCH, NOON.replace(hour=13))
    add(rest_trial("b"), WRONG, BENCH, NOON)
    for config in "abc":
        add(rest_trial(config), Timing.exact(9.0), (vgpu, TOOLS), NOON)
    assert database.rest.outcomes("t", BENCH) == {"a": Timing.exact(3.0), "b": WRONG}
    found = database.rest.times("t", "sm_80", TOOLS)
    assert found is not None
    assert (found.device, found.by_config) == (A100, {"a": 3.0}), "a GPU before the virtual one"
    asked = database.rest.times("t", "sm_80", TOOLS, vgpu)
    assert asked is not None and asked.device == vgpu
    for task, arch, tools in (("u", "sm_80", TOOLS), ("t", "sm_86", TOOLS), ("t", "sm_80", "x")):
        assert database.rest.times(task, arch, tools) is None
    before = database.rest.stamp("sm_80")
    add(rest_trial("a"), Timing.exact(4.0), (other, TOOLS), NOON)
    assert database.rest.stamp("sm_80") != before
    assert database.rest.stamp("sm_86") == database.rest.stamp("sm_75")


def test_a_damaged_row_is_named(database: Database) -> None:
    database.rest.add(rest_trial("a"), Timing.exact(5.0), BENCH, NOON)
    database._connection.execute("UPDATE rest SET outcome = '{'")
    with pytest.raises(DatabaseError, match="a row of the table rest is damaged"):
        database.rest.outcomes("t", BENCH)
