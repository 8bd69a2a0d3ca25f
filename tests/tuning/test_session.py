"""The session's loop, over a fake bench: rounds, budgets, resuming, faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.arena.random_search import random_search
from benchmarks.cases.resnet50_layers import biased
from boltgen.arch import arch_named
from boltgen.cost.model import ANALYTICAL
from boltgen.families.cutlass2.config import config_of
from boltgen.families.cutlass2.levels import level_configs
from boltgen.families.family import Level
from boltgen.families.mma_sync.candidates import legal_kernels
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.registry import candidates, predict
from boltgen.families.source import kernel_symbol
from boltgen.families.trial import Trial
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.select import Task, distinct
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.query import Query
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.candidates import FINAL_TRIALS, FINALISTS, UNRANKED_FINALISTS, Field
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.report import SessionReport
from boltgen.tuning.strategies import STRATEGIES
from tests.tuning.fakes import FakeBench, formula_us
from tests.tuning.samples import A100, GEMM, TOOLS, content_of, timing
from tests.tuning.sessions import PLAIN, RELU, SM80, TASKS, Heard, session


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
        asked = [trial for trial in bench.trials if trial.workload == task.workload]
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
    field = [trial for trial in bench.trials if trial.workload == PLAIN.workload]
    final = [trial for trial in bench.trials if trial.workload == RELU.workload]
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
        options = SessionOptions(strategy=STRATEGIES["exhaustive"], level=level)
        session(bench, database, options=options, tasks=[RELU]).run()
        kernels[level] = {trial.config.kernel for trial in bench.trials}
    traits = kernel_traits(RELU.workload.single.problem)
    assert kernels[Level.QUICK] == {*level_configs(traits, arch_named("sm_80"), Level.QUICK)}
    assert kernels[Level.QUICK] < kernels[Level.STANDARD] < kernels[Level.FULL]


def test_a_problem_that_no_kernel_of_the_level_fits_has_all_of_its_own(database: Database) -> None:
    tiny = Task(workload=Workload.of(Gemm(m=40, n=8, k=8)))
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


def test_what_is_known_of_a_kernel_that_has_changed_is_measured_again(database: Database) -> None:
    """A real change of some kernels voids their records, and no others."""
    first = session(FakeBench(), database).run()
    favourite = first.results[0].best.config
    changed = {trial.spec("sm_80") for trial in _trials_of(database) if trial.config == favourite}
    # A compilation finds out: all records of these kernels are void.
    database.learn({spec: content_of(kernel_symbol(spec), "new") for spec in changed}, TOOLS)
    void = {record.trial for record in database.records(Query(void=True))}
    bench = FakeBench(versions=lambda trial: "new" if trial.spec("sm_80") in changed else "")
    second = session(bench, database).run()
    assert {trial.spec("sm_80") for trial in bench.trials} == changed
    assert void <= set(bench.trials)
    assert second.reused == first.measured - len(void)
    # All is known again, and launches beyond it where the order of the trials led to some.
    pairs = zip(second.results, first.results, strict=True)
    assert all(again.best.timing.median_us <= one.best.timing.median_us for again, one in pairs)
    assert session(FakeBench(), database).run().measured == 0


def test_a_kernel_that_changes_voids_all_its_records_at_its_first_trial(database: Database) -> None:
    session(FakeBench(), database, tasks=[PLAIN]).run()
    before = _trials_of(database)
    heard = Heard()
    # The same kernels launched otherwise: whoever compiles them meets what they have become.
    batched = Task(workload=Workload.of(Gemm(m=1024, n=512, k=512)))
    bench = FakeBench(versions=lambda trial: "new")
    tasks = [PLAIN, batched]
    report = session(bench, database, tasks=tasks, observer=heard).run()
    met = {trial.spec("sm_80") for trial in bench.trials}
    void = {trial for trial in before if trial.spec("sm_80") in met}
    assert void
    assert void <= set(bench.trials), "all that is void is measured again"
    assert len(heard.warnings) == len({trial.spec("sm_80") for trial in void})
    assert all(" are void: " in warning for warning in heard.warnings)
    assert report.measured == len(bench.trials)
    assert {each.trial for each in database.records(Query(void=True))} == void


def _trials_of(database: Database) -> set[Trial]:
    return {record.trial for record in database.records()}


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
    rare = Task(workload=Workload.of(Gemm(m=256, n=256, k=256)))
    often = Task(workload=Workload.of(Gemm(m=4096, n=4096, k=4096)), occurrences=10)
    bench = FakeBench()
    session(bench, database, Budget(trials=40), tasks=[rare, often]).run()
    asked = Counter(trial.workload for trial in bench.trials)
    assert asked[often.workload] > 2 * asked[rare.workload] > 0


def test_an_alternative_is_timed_and_is_no_part_of_the_model(database: Database) -> None:
    slow = Workload.of(Gemm(m=4096, n=4096, k=4096))
    alternative = Task(workload=slow, is_alternative=True)
    bench = FakeBench()
    report = session(bench, database, Budget(trials=60), tasks=[*TASKS, alternative]).run()
    asked = Counter(trial.workload for trial in bench.trials)
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
    assert [(task.workload, task.occurrences) for task in merged] == [
        (RELU.workload, 5),
        (PLAIN.workload, 2),
    ]


def test_a_random_strategy_has_its_own_generator(tmp_path: Path) -> None:
    def trials(seed: int, name: str) -> list[Trial]:
        bench = FakeBench()
        options = SessionOptions(strategy=random_search, seed=seed)
        with Database(tmp_path / name) as database:
            session(bench, database, Budget(trials=30), options=options).run()
        return bench.trials

    assert trials(1, "a") == trials(1, "b")
    assert trials(1, "c") != trials(2, "d")


def layers_back_to_back() -> Workload:
    layer = Layer(problem=Gemm(m=4096, n=64, k=64), epilogue=biased(relu=True))
    return Workload(layers=(layer, layer))


def test_a_family_without_a_ranking_has_the_models_favourites_for_finalists() -> None:
    workload = layers_back_to_back()
    field = Field(workload, SM80, Level.STANDARD, ANALYTICAL)
    assert (field.ranking, field.opening()) == (None, ())
    predicted = {c: predict(workload, c, SM80).time_us for c in candidates(workload, SM80)}
    finalists = field.finalists({})
    assert [predicted[c] for c in finalists] == sorted(predicted.values())[:UNRANKED_FINALISTS]
    assert field.best_us == predicted[finalists[0]]


def test_a_fusion_is_timed_as_one_kernel_beside_its_products(database: Database) -> None:
    fused = Task(workload=layers_back_to_back(), occurrences=2, is_alternative=True)
    bench, heard = FakeBench(), Heard()
    report = session(bench, database, tasks=[*TASKS, fused, fused], observer=heard).run()
    *products, found = report.results
    assert found.task == replace(fused, occurrences=4)
    timed = [trial for trial in bench.trials if trial.workload == fused.workload]
    assert len(timed) == len(set(timed)) == UNRANKED_FINALISTS
    predicted = [predict(fused.workload, trial.config, SM80).time_us for trial in timed]
    assert predicted == sorted(predicted), "those that the model likes best"
    assert found.best is not None
    assert found.best.config in {trial.config for trial in timed}
    # The products' time is all of the model's: a fusion is another way to the same.
    assert report.model_us == sum(result.total_us or 0.0 for result in products)
    assert heard.bests[-1] == (pytest.approx(report.model_us), len(TASKS))
    assert {record.trial for record in database.records()} == set(bench.trials)
    assert session(FakeBench(), database, tasks=[*TASKS, fused]).run().measured == 0


def test_layers_that_the_model_runs_as_one_kernel_are_part_of_its_time(database: Database) -> None:
    fused = Task(workload=layers_back_to_back(), occurrences=2)
    report = session(FakeBench(), database, tasks=[PLAIN, fused]).run()
    times = [result.best.timing.median_us for result in report.results if result.best]
    assert report.model_us == times[0] + 2 * times[1]


def test_a_search_keeps_to_the_kernels_of_its_level(database: Database) -> None:
    """By default what was measured decides the order; another kernel would have to be compiled."""
    for strategy in STRATEGIES.values():
        bench = FakeBench(toolchain=strategy.__name__)
        options = SessionOptions(strategy=strategy, level=Level.QUICK)
        session(bench, database, options=options, tasks=[PLAIN]).run()
        held = level_configs(kernel_traits(GEMM.single.problem), arch_named("sm_80"), Level.QUICK)
        assert {trial.config.kernel for trial in bench.trials} <= set(held)


def test_at_the_full_level_what_is_left_of_a_budget_goes_beyond_the_list(
    database: Database,
) -> None:
    listed = FakeBench(toolchain="listed")
    all_listed = SessionOptions(strategy=STRATEGIES["exhaustive"], level=Level.FULL)
    session(listed, database, options=all_listed, tasks=[PLAIN]).run()
    known = {trial.config.kernel for trial in listed.trials}
    bench = FakeBench()
    budget = Budget(trials=len(listed.trials) + 200)
    full = SessionOptions(level=Level.FULL)
    report = session(bench, database, budget, options=full, tasks=[PLAIN]).run()
    tried = [trial.config.kernel for trial in bench.trials]
    first_beyond = min(place for place, kernel in enumerate(tried) if kernel not in known)
    assert set(tried[:first_beyond]) == known, "the list comes first"
    assert report.measured == budget.trials


def test_a_kernel_beyond_the_list_that_was_fast_alone_is_a_finalist() -> None:
    relu = RELU.workload
    field = Field(relu, arch_named("sm_80"), Level.FULL, ANALYTICAL)
    traits = kernel_traits(relu.single.problem)
    listed = {config.kernel for space in field.spaces for config in space.candidates}
    legal = map(config_of, legal_kernels(traits, arch_named("sm_80")))
    beyond = next(config for config in legal if config not in listed)
    finalists = field.finalists({beyond: 1.0, **dict.fromkeys(field.opening()[:3], 50.0)})
    assert finalists[0].kernel == beyond
    standard = Field(relu, arch_named("sm_80"), Level.STANDARD, ANALYTICAL)
    assert all(config.kernel != beyond for config in standard.finalists({beyond: 1.0}))


def test_a_session_warns_of_a_budget_that_is_too_small_for_one_trial_each(
    database: Database,
) -> None:
    heard = Heard()
    session(FakeBench(), database, Budget(trials=2), observer=heard).run()
    (told,) = heard.warnings
    assert f"each of {len(TASKS)} problems" in told
    enough = Heard()
    session(FakeBench(), database, Budget(trials=40), observer=enough).run()
    assert enough.warnings == []
