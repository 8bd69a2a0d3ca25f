"""The session's loop, over a fake bench: rounds, budgets, resuming, faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from boltgen.arch import arch_named
from boltgen.ir.chain import ChainLayer, GemmChain
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Gemm
from boltgen.space.legality import kernel_traits
from boltgen.space.library import Level, level_configs
from boltgen.tune.budget import Budget
from boltgen.tune.chain_field import CHAIN_FINALISTS
from boltgen.tune.chain_model import best_chain_config, predict_chain
from boltgen.tune.database import Database
from boltgen.tune.field import FINAL_TRIALS, FINALISTS
from boltgen.tune.outcome import Trial
from boltgen.tune.select import ChainTask, Task, distinct
from boltgen.tune.session import SessionOptions, SessionReport
from boltgen.tune.strategies.random_search import random_search
from tests.tune.fakes import FakeBench, formula_us
from tests.tune.resnet50_layers import biased
from tests.tune.samples import A100, TOOLS, timing
from tests.tune.sessions import PLAIN, RELU, SM80, TASKS, Heard, session


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
    field = [trial for trial in bench.trials if trial.epilogue == ElementwiseGraph()]
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
    tiny = Task(problem=Gemm(m=8, n=8, k=8), epilogue=ElementwiseGraph())
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
    rare = Task(problem=Gemm(m=256, n=256, k=256), epilogue=ElementwiseGraph())
    often = Task(problem=Gemm(m=4096, n=4096, k=4096), epilogue=ElementwiseGraph(), occurrences=10)
    bench = FakeBench()
    session(bench, database, Budget(trials=40), tasks=[rare, often]).run()
    asked = Counter(trial.problem.m for trial in bench.trials)
    assert asked[4096] > 2 * asked[256] > 0


def test_an_alternative_is_timed_and_is_no_part_of_the_model(database: Database) -> None:
    slow = Gemm(m=4096, n=4096, k=4096)
    alternative = Task(problem=slow, epilogue=ElementwiseGraph(), is_alternative=True)
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
