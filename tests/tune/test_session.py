"""The session's loop, over a fake bench: rounds, budgets, resuming, faults."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.arch import arch_named
from boltgen.errors import DatabaseError, TuningError
from boltgen.ir.chain import ChainLayer, GemmChain
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.space.legality import kernel_traits
from boltgen.space.library import Level, level_configs
from boltgen.tune.budget import Budget, parse_budget
from boltgen.tune.chain_field import CHAIN_FINALISTS
from boltgen.tune.chain_model import best_chain_config, predict_chain
from boltgen.tune.database import Database
from boltgen.tune.device_lock import device_lock
from boltgen.tune.field import FINAL_TRIALS, FINALISTS
from boltgen.tune.outcome import Failure, Fault, Timing, Trial
from boltgen.tune.progress import Quiet
from boltgen.tune.select import ChainTask, Task, distinct
from boltgen.tune.session import Session, SessionOptions, SessionReport
from boltgen.tune.strategies.random_search import random_search
from tests.tune.fakes import FakeBench, failing, formula_us
from tests.tune.resnet50_layers import biased
from tests.tune.samples import A100, TOOLS, timing

PLAIN = Task(problem=Gemm(m=512, n=512, k=512), epilogue=Epilogue())
RELU = Task(problem=Gemm(m=512, n=512, k=512), epilogue=biased(relu=True), occurrences=3)
CONV = Task(
    problem=Conv2d(n=8, h=28, w=28, c=64, k=256, r=3, s=3, padding=(1, 1, 1, 1)),
    epilogue=biased(relu=True),
)
TASKS = (PLAIN, RELU, CONV)
LOST = Failure(fault=Fault.DEVICE_LOST, reason="the GPU has fallen off the bus")
ALL = Budget(trials=10_000)
SM80 = arch_named("sm_80")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "records.sqlite") as database:
        yield database


def session(bench: FakeBench, database: Database, budget: Budget = ALL, **more) -> Session:
    tasks = more.pop("tasks", TASKS)
    more.setdefault("lock_folder", database.path.parent / "locks")
    return Session(tasks, bench, database, budget, **more)


def best_configs(report: SessionReport) -> list[object]:
    return [result.best and result.best.config for result in report.results]


def test_everything_is_measured_once_and_written(database: Database) -> None:
    bench = FakeBench()
    report = session(bench, database).run()
    assert report.stopped is None
    assert report.measured == len(bench.trials) == len(set(bench.trials))
    assert {record.trial for record in database.records()} == set(bench.trials)
    for record in database.records():
        assert record.outcome == timing(formula_us(record.trial))
        assert (record.device, record.toolchain) == (A100, TOOLS)


def test_what_is_chosen_was_measured_as_it_ships(database: Database) -> None:
    bench = FakeBench()
    report = session(bench, database).run()
    for task, result in zip(TASKS, report.results, strict=True):
        assert result.task == task
        assert result.best is not None
        asked = [
            t for t in bench.trials if (t.problem, t.epilogue) == (task.problem, task.epilogue)
        ]
        assert result.best.config in {trial.config for trial in asked}
        assert result.best.timing.median_us == min(map(formula_us, asked))
        # The formula's favourite, although round one has no swizzle.
        assert (result.best.config.threadblock.m, result.best.config.threadblock.n) == (128, 64)
        assert (result.best.config.stages, result.best.config.swizzle) == (4, 2)
    assert report.model_us == sum(
        r.best.timing.median_us * t.occurrences
        for r, t in zip(report.results, TASKS, strict=True)
        if r.best
    )


def test_round_two_times_launches_of_the_fastest_kernels(database: Database) -> None:
    bench = FakeBench()
    session(bench, database, tasks=[RELU]).run()
    field = [trial for trial in bench.trials if trial.epilogue == Epilogue()]
    final = [trial for trial in bench.trials if trial.epilogue == RELU.epilogue]
    assert bench.trials == field + final
    assert all(trial.config.swizzle == 1 for trial in field)
    assert len(final) <= FINAL_TRIALS
    assert len({trial.config.swizzle for trial in final}) > 1
    assert len({trial.spec("sm_80") for trial in final}) == FINALISTS
    fastest = sorted({t.config.kernel: 0 for t in sorted(field, key=formula_us)})
    by_kernel = {k: min(formula_us(t) for t in field if t.config.kernel == k) for k in fastest}
    assert {trial.config.kernel for trial in final} == set(
        sorted(by_kernel, key=lambda kernel: (by_kernel[kernel], kernel))[:FINALISTS]
    )


def test_a_level_is_the_field_of_a_library(database: Database) -> None:
    kernels = {}
    for level in Level:
        bench = FakeBench(toolchain=level.value)
        session(bench, database, options=SessionOptions(level=level), tasks=[RELU]).run()
        kernels[level] = {trial.config.kernel for trial in bench.trials}
    traits = kernel_traits(RELU.problem)
    assert kernels[Level.QUICK] == {*level_configs(traits, arch_named("sm_80"), Level.QUICK)}
    assert kernels[Level.QUICK] < kernels[Level.STANDARD] < kernels[Level.FULL]


def test_a_problem_that_no_kernel_of_the_level_fits_has_all_of_its_own(database: Database) -> None:
    tiny = Task(problem=Gemm(m=8, n=8, k=8), epilogue=Epilogue())
    report = session(FakeBench(), database, tasks=[tiny]).run()
    assert report.results[0].best is not None


def test_a_second_session_measures_nothing_that_is_known(database: Database) -> None:
    first = session(FakeBench(), database, Budget(trials=60)).run()
    assert first.measured == 60
    bench = FakeBench()
    second = session(bench, database).run()
    assert second.reused == 60
    assert len(set(bench.trials)) == len(bench.trials) == second.measured
    assert len(list(database.records())) == first.measured + second.measured
    bench = FakeBench()
    third = session(bench, database).run()
    assert (bench.trials, third.measured) == ([], 0)
    assert best_configs(third) == best_configs(second)


def test_another_toolchain_or_device_begins_anew(database: Database) -> None:
    session(FakeBench(), database).run()
    for other in (
        FakeBench(toolchain=TOOLS.replace("CUTLASS 4.2.0", "CUTLASS 4.3.0")),
        FakeBench(device=replace(A100, driver="999.1")),
    ):
        report = session(other, database).run()
        assert report.reused == 0
        assert report.measured == len(other.trials) > 0


@pytest.mark.parametrize("trials", [1, 2, 7, 50])
def test_a_budget_of_trials_is_kept(database: Database, trials: int) -> None:
    bench = FakeBench()
    report = session(bench, database, Budget(trials=trials)).run()
    assert report.measured == len(bench.trials) == trials


def test_a_small_budget_still_times_every_task_as_it_ships(database: Database) -> None:
    report = session(FakeBench(), database, Budget(trials=30)).run()
    assert all(result.best for result in report.results)


def test_a_budget_of_seconds_is_kept(database: Database) -> None:
    seconds = 0.0

    def slow(trial: Trial) -> float:
        nonlocal seconds
        seconds += 0.5
        return formula_us(trial)

    bench = FakeBench(slow)
    budget = Budget(seconds=20.0)
    report = session(bench, database, budget, clock=lambda: seconds).run()
    assert (report.seconds, report.measured) == (20.0, 40)
    assert bench.closed_early == 2, "the rest of a batch is dropped, in both rounds"
    assert all(result.best for result in report.results)


def test_trials_go_where_the_time_is(database: Database) -> None:
    rare = Task(problem=Gemm(m=256, n=256, k=256), epilogue=Epilogue())
    often = Task(problem=Gemm(m=4096, n=4096, k=4096), epilogue=Epilogue(), occurrences=10)
    bench = FakeBench()
    session(bench, database, Budget(trials=40), tasks=[rare, often]).run()
    asked = Counter(trial.problem.m for trial in bench.trials)
    assert asked[4096] > 2 * asked[256] > 0


def test_an_alternative_is_timed_and_is_no_part_of_the_model(database: Database) -> None:
    slow = Gemm(m=4096, n=4096, k=4096)
    alternative = Task(problem=slow, epilogue=Epilogue(), is_alternative=True)
    bench = FakeBench()
    report = session(bench, database, Budget(trials=60), tasks=[*TASKS, alternative]).run()
    asked = Counter(trial.problem for trial in bench.trials)
    assert 0 < asked[slow] <= 60 / 3, "however slow it is, the share of an average product"
    *run, other = report.results
    assert all(result.best for result in report.results)
    assert other.task.is_alternative
    assert report.model_us == sum(result.total_us for result in run)
    shown = [result.task.occurrences for result in run]
    assert shown == [1, 3, 1]


def test_what_the_model_runs_is_no_alternative() -> None:
    alternative = replace(PLAIN, is_alternative=True)
    assert distinct([alternative, PLAIN, alternative]) == (PLAIN,)
    assert distinct([alternative, alternative]) == (replace(alternative, occurrences=2),)


def test_equal_tasks_are_one() -> None:
    merged = distinct([RELU, PLAIN, replace(RELU, occurrences=2), PLAIN])
    assert [(task.epilogue, task.occurrences) for task in merged] == [
        (RELU.epilogue, 5),
        (PLAIN.epilogue, 2),
    ]


def test_a_failure_never_wins_and_is_not_tried_again(database: Database) -> None:
    wrong = Failure(fault=Fault.WRONG_RESULT, reason="2 of 64 elements differ")
    bench = FakeBench(failing(wrong, lambda trial: trial.config.stages == 4))
    report = session(bench, database).run()
    for result in report.results:
        assert result.best is not None
        assert result.best.config.stages != 4
    assert report.failed == sum(trial.config.stages == 4 for trial in bench.trials)
    assert {r.outcome for r in database.records() if isinstance(r.outcome, Failure)} == {wrong}
    assert session(FakeBench(), database).run().measured == 0


def test_where_everything_fails_there_is_no_best(database: Database) -> None:
    crash = Failure(fault=Fault.CRASH, reason="the worker was ended by SIGSEGV")
    report = session(FakeBench(lambda trial: crash), database, tasks=[RELU]).run()
    (result,) = report.results
    assert (result.best, report.model_us) == (None, None)
    assert result.failures
    assert set(result.failures) == {crash}


def test_a_lost_device_ends_the_session_with_what_was_measured(database: Database) -> None:
    left = iter(range(25))
    bench = FakeBench(lambda trial: formula_us(trial) if next(left, None) is not None else LOST)
    heard = Heard()
    report = session(bench, database, observer=heard).run()
    assert report.stopped == "the device was lost: the GPU has fallen off the bus"
    assert heard.warnings == [report.stopped]
    assert (report.measured, len(bench.trials)) == (25, 26)
    assert len(list(database.records())) == 25, "a lost device says nothing about a candidate"
    again = session(FakeBench(), database).run()
    assert again.reused == 25
    assert bench.trials[25] in {record.trial for record in database.records()}


class Heard(Quiet):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.bests: list[tuple[float, int]] = []
        self.begun = self.ended = 0

    def begin(self, budget: Budget, tasks: int) -> None:
        self.begun += 1

    def measured(self, trial: Trial, outcome: object, best_us: float, timed: int) -> None:
        self.bests.append((best_us, timed))

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def end(self) -> None:
        self.ended += 1


def test_the_observer_hears_the_best_figure(database: Database) -> None:
    heard = Heard()
    report = session(FakeBench(), database, observer=heard).run()
    assert (heard.begun, heard.ended, len(heard.bests)) == (1, 1, report.measured)
    assert heard.bests[-1] == (pytest.approx(report.model_us), 3)
    assert heard.bests[0] == (pytest.approx(heard.bests[0][0]), heard.bests[0][1])
    assert heard.warnings == []


def test_an_interrupt_loses_nothing_measured(database: Database) -> None:
    left = iter(range(17))

    def interrupted(trial: Trial) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return formula_us(trial)

    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        session(FakeBench(interrupted), database, observer=heard).run()
    assert len(list(database.records())) == 17
    assert heard.ended == 1
    assert session(FakeBench(), database).run().reused == 17


def test_a_full_disk_ends_the_session_with_what_was_measured(database: Database) -> None:
    session(FakeBench(), database, Budget(trials=10)).run()
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count = {pages}")
    bench = FakeBench()
    with pytest.raises(DatabaseError, match=r"no space left.*what was written before is kept"):
        session(bench, database).run()
    kept = {record.trial for record in database.records()}
    assert len(kept) == 10 + len(bench.trials) - 1, "all but the one that did not fit"
    database._connection.execute("PRAGMA max_page_count = 1000000")
    assert session(FakeBench(), database).run().reused == len(kept)


def test_steps_may_be_left_at_any_time(database: Database) -> None:
    bench = FakeBench()
    running = session(bench, database)
    for count, (trial, outcome) in enumerate(running.steps(), start=1):
        assert isinstance(outcome, Timing)
        assert trial in {record.trial for record in database.records()}
        if count == 5:
            break
    assert running.report().measured == 5


def test_a_killed_session_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    reading, writing = os.pipe()

    def telling(trial: Trial) -> float:
        # One byte when the next trial is asked for: then the last one is in the database.
        os.write(writing, b".")
        return formula_us(trial)

    def tune() -> None:
        with Database(path) as database:
            session(FakeBench(telling), database).run()

    process = multiprocessing.get_context("fork").Process(target=tune)
    process.start()
    told = 0
    while told < 30:
        told += len(os.read(reading, 1))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with Database(path) as database:
        kept = {record.trial for record in database.records()}
        assert len(kept) >= 29
        bench = FakeBench()
        report = session(bench, database).run()
        assert report.reused == len(kept)
        assert not kept & set(bench.trials)


def test_a_drifting_clock_is_said(database: Database) -> None:
    count = 0

    def throttled(trial: Trial) -> Timing:
        nonlocal count
        count += 1
        return timing(formula_us(trial), clock_mhz=1410.0 if count <= 40 else 1095.0)

    heard = Heard()
    report = session(FakeBench(throttled), database, Budget(trials=50), observer=heard).run()
    assert report.drift is not None
    assert "10 of 50 measurements were not at 1410 MHz but between 1095 and 1410" in report.drift
    assert "nvidia-smi --lock-gpu-clocks" in report.drift
    assert len(heard.warnings) == 1, "said once, when it is seen"
    assert "1 of 41" in heard.warnings[0]


def test_a_steady_clock_is_not_spoken_of(database: Database) -> None:
    assert session(FakeBench(), database).run().drift is None
    unread = FakeBench(lambda trial: timing(formula_us(trial), clock_mhz=None), toolchain="other")
    assert session(unread, database).run().drift is None


def test_a_device_is_used_by_one_session_at_a_time(database: Database, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    told: list[str] = []
    bench = FakeBench(lock_name="GPU-1234/abc")
    once = SessionOptions(wait=False)
    with device_lock("GPU-1234/abc", locks, wait=False, tell=told.append):
        with pytest.raises(TuningError, match=r"another session is measuring on GPU-1234/abc"):
            session(bench, database, lock_folder=locks, options=once).run()
        other = FakeBench(lock_name="GPU-5678")
        assert session(other, database, Budget(trials=3), lock_folder=locks).run().measured == 3
    assert bench.trials == []
    assert session(bench, database, lock_folder=locks, options=once).run().measured > 0
    assert told == []


def test_a_second_session_waits_for_the_first(database: Database, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    reading, writing = os.pipe()
    done_reading, done_writing = os.pipe()

    def hold() -> None:
        with device_lock("GPU-1234", locks, wait=False, tell=print):
            os.write(writing, b"held")
            os.read(done_reading, 1)

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    assert os.read(reading, 4) == b"held"

    class Releasing(Heard):
        def warn(self, message: str) -> None:
            super().warn(message)
            os.write(done_writing, b"!")

    heard = Releasing()
    bench = FakeBench(lock_name="GPU-1234")
    session(bench, database, Budget(trials=3), lock_folder=locks, observer=heard).run()
    process.join()
    assert heard.warnings == ["another session is measuring on GPU-1234; waiting for it to end"]
    assert len(bench.trials) == 3


def test_a_random_strategy_has_its_own_generator(database: Database) -> None:
    def trials(seed: int, tools: str) -> list[Trial]:
        bench = FakeBench(toolchain=tools)
        options = SessionOptions(strategy=random_search, seed=seed)
        session(bench, database, Budget(trials=30), options=options).run()
        return bench.trials

    assert trials(1, "a") == trials(1, "b")
    assert trials(1, "c") != trials(2, "d")


def test_a_chain_is_timed_as_one_kernel_beside_its_products(database: Database) -> None:
    chain = ChainTask(
        chain=GemmChain(
            layers=tuple(
                ChainLayer(problem=Gemm(m=4096, n=64, k=64), epilogue=biased(relu=True))
                for _ in range(2)
            )
        ),
        occurrences=2,
    )
    bench, heard = FakeBench(), Heard()
    report = session(bench, database, tasks=[*TASKS, chain, chain], observer=heard).run()
    *products, found = report.results
    assert found.task == replace(chain, occurrences=4)
    timed = [trial for trial in bench.trials if trial.problem == chain.chain]
    assert len(timed) == len(set(timed)) == CHAIN_FINALISTS
    predicted = [predict_chain(chain.chain, t.config, SM80).time_us for t in timed]
    assert predicted == sorted(predicted), "those that the model likes best"
    assert predicted[0] == best_chain_config(chain.chain, SM80)[1].time_us
    assert found.best is not None
    assert found.best.config in {trial.config for trial in timed}
    # The products' time is all of the model's: a chain is another way to the same.
    assert report.model_us == sum(result.total_us or 0.0 for result in products)
    assert heard.bests[-1] == (pytest.approx(report.model_us), len(TASKS))
    assert {record.trial for record in database.records()} == set(bench.trials)
    assert session(FakeBench(), database, tasks=[*TASKS, chain]).run().measured == 0


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("120s", Budget(seconds=120)),
        ("1.5 h", Budget(seconds=5400)),
        ("2min", Budget(seconds=120)),
        ("500trials", Budget(trials=500)),
        ("1 trial", Budget(trials=1)),
    ],
)
def test_budgets(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "120", "s", "-3s", "1.5trials", "3 fortnights", "1e9s"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(TuningError, match="is not like 120s, 2min, 1h or 500trials"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["0s", "0trials", "0.0h"])
def test_a_budget_of_zero(text: str) -> None:
    with pytest.raises(TuningError, match=r"a budget of 0(s|trials) measures nothing: give more"):
        parse_budget(text)
