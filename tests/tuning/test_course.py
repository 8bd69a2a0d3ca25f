"""How a search went: improvements by trial, and what brought each up."""

from __future__ import annotations

from boltgen.cli.terminal.tables import searches
from boltgen.families.family import Level
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.strategies import STRATEGIES
from tests.tuning.fakes import FakeBench, formula_us
from tests.tuning.samples import A100, GEMM, NO_LAUNCH, record
from tests.tuning.sessions import TASKS, session
from tests.tuning.test_transfer import NEWER, SURPRISES


def test_a_course_has_every_improvement_and_nothing_else(database: Database) -> None:
    bench = FakeBench(lambda trial: NO_LAUNCH if trial == bench.trials[0] else formula_us(trial))
    report = session(bench, database).run()
    for result in report.results:
        times_us = [
            None if trial == bench.trials[0] else formula_us(trial)
            for trial in bench.trials
            if trial.workload == result.task.workload
        ]
        expected, best = [], float("inf")
        for number, us in enumerate(times_us, 1):
            if us is not None and us < best:
                expected.append((number, us))
                best = us
        assert [(each.trial, each.median_us) for each in result.course] == expected
        assert result.best is not None
        assert result.course[-1].config == result.best.config


def test_what_was_known_is_no_course(database: Database) -> None:
    session(FakeBench(), database).run()
    again = session(FakeBench(), database).run()
    assert again.measured == 0
    assert all(result.course == () for result in again.results)
    assert searches(again).row_count == 0
    assert len(again.results) == len(TASKS)


def test_a_course_says_what_brought_a_configuration_up(database: Database) -> None:
    (surprise, _) = SURPRISES
    database.add([record(1.0, config=surprise, device=NEWER)])
    bench = FakeBench(lambda trial: 90.0 if trial.config == surprise else formula_us(trial))
    options = SessionOptions(strategy=STRATEGIES["evolutionary"], level=Level.FULL)
    budget = Budget(trials=400)
    report = session(bench, database, budget, tasks=[Task(workload=GEMM)], options=options).run()
    (result,) = report.results
    assert A100 != NEWER
    assert (result.course[0].trial, result.course[0].config) == (1, surprise)
    assert "elsewhere" in result.course[0].why
    assert any("cost model" in each.why for each in result.course[1:])
    assert searches(report).row_count == 1
