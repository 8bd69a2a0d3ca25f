"""Strategies and schedulers: those that are there, and that the interfaces carry others."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.arena import ALL_STRATEGIES
from benchmarks.arena.random_search import random_search
from benchmarks.cases.resnet50_layers import biased
from boltgen.arch import arch_named
from boltgen.cost.model import ANALYTICAL, COST_MODELS, cost_model_named
from boltgen.errors import BoltgenError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.family import Level
from boltgen.families.trial import Trial
from boltgen.ir.key import digest
from boltgen.ir.outcome import BLAMELESS, Failure, Fault, Outcome, Timing
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.candidates import Field
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.scheduler import ByWeight, TaskState, kind_of
from boltgen.tuning.session.session import Session
from boltgen.tuning.strategies import STRATEGIES, strategy_named
from boltgen.tuning.strategies.exhaustive import exhaustive
from boltgen.tuning.strategies.experience import Experience
from boltgen.tuning.strategies.model_first import model_first
from boltgen.tuning.strategies.reach import Reach
from boltgen.tuning.strategies.residual import Residual
from boltgen.tuning.strategies.strategy import InOrder, Observation, SearchProblem
from tests.families.knobs import pinned
from tests.tuning.fakes import FakeBench, formula_us

SM80 = arch_named("sm_80")
GEMM = Workload.of(Gemm(m=1024, n=1024, k=1024))
LARGER = Workload.of(Gemm(m=2048, n=1024, k=2048))
FIELD = Field(GEMM, SM80, Level.FULL, ANALYTICAL)
(SPACE,) = FIELD.spaces
PROBLEM = SearchProblem(
    workload=GEMM,
    candidates=FIELD.opening(),
    spaces=FIELD.spaces,
    predicted_us=partial(FIELD.predicted_us, GEMM),
)
FUSED = Workload(layers=(Layer(problem=Gemm(m=4096, n=64, k=64)),) * 2)


def problem() -> SearchProblem:
    """The problem, of which nothing is known."""
    return replace(PROBLEM, experience=Experience())


def test_exhaustive_search_tries_the_likeliest_first() -> None:
    strategy = exhaustive(PROBLEM, random.Random(0))
    first = strategy.propose(5)
    strategy.observe([])
    rest = strategy.propose(10_000)
    assert (*first, *rest) == PROBLEM.candidates
    assert strategy.propose(1) == []
    times = FIELD.predicted_us(GEMM, PROBLEM.candidates)
    assert times == sorted(times)
    assert all(SPACE.penalty(config) == 0 for config in PROBLEM.candidates)


def test_random_search_tries_all_in_an_order_of_its_seed() -> None:
    orders = [random_search(PROBLEM, random.Random(seed)).propose(10_000) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(PROBLEM.candidates)


def test_strategies_and_cost_models_are_found_by_their_names() -> None:
    assert strategy_named("exhaustive") is exhaustive
    assert strategy_named("model-first") is model_first
    assert cost_model_named("analytical") is ANALYTICAL
    for named, known in ((strategy_named, STRATEGIES), (cost_model_named, COST_MODELS)):
        with pytest.raises(BoltgenError) as caught:
            named("gradual")
        assert "'gradual'" in str(caught.value)
        assert all(name in str(caught.value) for name in known)


Device = Callable[[Cutlass2Config], Outcome]


def formula(config: Cutlass2Config) -> Outcome:
    """A device that likes other configurations than the model does; one in seven fails there."""
    if digest(config)[0] in "01":
        return Failure(fault=Fault.LAUNCH, reason="it fails")
    return Timing.exact(formula_us(Trial(workload=GEMM, config=config)))


def searched(
    name: str, device: Device, trials: int, seed: int = 0, on: SearchProblem | None = None
) -> list[tuple[Cutlass2Config, Outcome]]:
    """What a strategy tries, eight at a time, and hears."""
    strategy = ALL_STRATEGIES[name](on or problem(), random.Random(seed))
    heard: list[tuple[Cutlass2Config, Outcome]] = []
    while len(heard) < trials:
        results = [(config, device(config)) for config in strategy.propose(8)]
        if not results:
            break
        strategy.observe(results)
        heard += results
    return heard


def best_us(heard: Sequence[tuple[Cutlass2Config, Outcome]]) -> float:
    return min(each.median_us for _, each in heard if isinstance(each, Timing))


@pytest.mark.parametrize("name", ALL_STRATEGIES)
def test_a_strategy_tries_nothing_twice_and_comes_to_an_end(name: str) -> None:
    """In a space of some hundred kernels."""
    space = pinned(SPACE, swizzle=1, split_k=1, stages=3, threadblock_k=32)
    listed = tuple(config for config in PROBLEM.candidates if config in space)
    small = replace(problem(), candidates=listed, spaces=(space,))
    heard = searched(name, formula, 100_000, on=small)
    tried = [config for config, _ in heard]
    assert len(tried) == len(set(tried))
    if name != "model-first":
        assert set(listed) <= set(tried)
    if name == "evolutionary":
        assert set(tried) == set(space.legal_kernels())
    beyond = set(tried) - set(listed)
    assert all(not SPACE.broken(config) for config in beyond)
    assert bool(beyond) == (name in {"annealing", "evolutionary", "gradient"})


@pytest.mark.parametrize("name", ALL_STRATEGIES)
def test_a_strategy_is_decided_by_its_seed(name: str) -> None:
    runs = [searched(name, formula, 40, seed) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert (runs[0] != runs[2]) == (name in {"random", "annealing", "evolutionary", "gradient"})


@pytest.mark.parametrize("name", ["annealing", "evolutionary", "gradient", "model-first"])
def test_strategies_find_more_than_chance(name: str) -> None:
    """Where the model is off by a factor for deep pipelines, and by noise."""

    def device(config: Cutlass2Config) -> Outcome:
        (predicted_us,) = PROBLEM.predicted_us([config])
        noise = random.Random(digest(config)).gauss(0.0, 0.15)
        return Timing.exact(predicted_us * (1.5 if config.stages > 3 else 1.0) * math.exp(noise))

    found, chance = (
        statistics.fmean(best_us(searched(each, device, 32, seed)) for seed in range(5))
        for each in (name, "random")
    )
    assert found < chance


def test_model_first_stops_where_the_model_is_sure() -> None:
    """All times half as long again as predicted: few trials say so, and fewer of the next problem
    that is tuned on the same device.
    """
    first = problem()
    field = Field(LARGER, SM80, Level.FULL, ANALYTICAL)
    spent = []
    for each in (first, field.searched(LARGER, field.opening(), first.experience)):

        def scaled(config: Cutlass2Config, on: SearchProblem = each) -> Outcome:
            return Timing.exact(1.5 * on.predicted_us([config])[0])

        heard = searched("model-first", scaled, 100_000, on=each)
        assert heard[0][0] == each.candidates[0]
        spent.append(len(heard))
    assert spent[1] <= spent[0] < len(first.candidates) / 2
    alone = searched("model-first", scaled, 100_000, on=replace(each, experience=Experience()))
    assert spent[1] < len(alone)


def test_model_first_goes_on_where_the_model_was_wrong() -> None:
    """Times without a pattern: candidates are left out only where the error could not make up."""

    def erratic(config: Cutlass2Config) -> Outcome:
        noise = random.Random(digest(config)).gauss(0.0, 0.5)
        return Timing.exact(PROBLEM.predicted_us([config])[0] * math.exp(noise))

    heard = searched("model-first", erratic, 100_000)
    assert 16 < len(heard) < len(PROBLEM.candidates)
    least = min(o.median_us for c in PROBLEM.candidates if isinstance(o := erratic(c), Timing))
    assert best_us(heard) == least


def test_evolution_finds_what_the_enumerator_does_not_list() -> None:
    """The model's word counts for kernels that nobody listed, and what was measured for all."""
    listed = PROBLEM.candidates[-40:]
    narrow = replace(problem(), candidates=listed)

    def device(config: Cutlass2Config) -> Outcome:
        return Timing.exact(
            PROBLEM.predicted_us([config])[0] * (3.0 if config.swizzle > 1 else 1.0)
        )

    heard = searched("evolutionary", device, 48, on=narrow)
    best = min(PROBLEM.predicted_us(listed))
    assert best_us(heard) < best
    assert {config for config, _ in heard} - set(PROBLEM.candidates)
    late = [config.swizzle for config, _ in heard[24:]]
    assert late.count(1) > len(late) / 2, "what is slow there is no longer expected to be fast"


def test_evolution_keeps_to_the_candidates_where_nothing_else_is_legal() -> None:
    only = replace(problem(), spaces=(SPACE.only(PROBLEM.candidates),))
    heard = searched("evolutionary", formula, 100_000, on=only)
    assert sorted(config for config, _ in heard) == sorted(PROBLEM.candidates)
    assert [config for config, _ in heard[:8]] == list(PROBLEM.candidates[:8])


def test_a_reach_gives_each_configuration_once_in_the_expected_order() -> None:
    residual = Residual(problem())
    reach = Reach(problem(), residual)
    likeliest = reach.likeliest()
    times_us = PROBLEM.predicted_us(likeliest)
    assert times_us == sorted(times_us), "nothing was measured"
    assert len(likeliest) == len(set(likeliest)) > 200
    assert reach.predicted(5) == likeliest[:5]
    assert min(times_us) <= min(PROBLEM.predicted_us(PROBLEM.candidates))
    reach.take(likeliest[:5])
    assert not set(likeliest[:5]) & {*reach.likeliest(), *reach.predicted(50)}
    launches = {config for config in reach.likeliest() if config != config.kernel}
    assert launches - set(PROBLEM.candidates), "launches that nobody listed are come to"


def test_model_first_waits_for_outcomes() -> None:
    strategy = model_first(problem(), random.Random(0))
    first = strategy.propose(100)
    assert first == list(PROBLEM.candidates[:8])
    assert strategy.propose(100) == []
    strategy.observe([(config, formula(config)) for config in first])
    assert strategy.propose(100)


def test_a_session_asks_again_when_what_a_strategy_waits_for_is_known(tmp_path: Path) -> None:
    measured = {}
    for name in ("exhaustive", "model-first"):
        bench = FakeBench()
        with Database(tmp_path / f"{name}.sqlite") as database:
            report = Session(
                [Task(workload=GEMM)],
                bench,
                database,
                Budget(trials=10_000),
                lock_folder=tmp_path,
                options=SessionOptions(strategy=ALL_STRATEGIES[name], level=Level.FULL),
            ).run()
        assert report.stopped is None
        measured[name] = report.measured
    assert 16 < measured["model-first"] < measured["exhaustive"]


def test_what_was_measured_corrects_the_model_nearby() -> None:
    """Deep pipelines take three times what the model says; nothing else is off."""
    residual = Residual(problem())
    half = PROBLEM.candidates[::2]

    def factor(config: Cutlass2Config) -> float:
        return 3.0 if config.stages > 3 else 1.0

    predicted = PROBLEM.predicted_us(half)
    residual.observe(
        [(c, Timing.exact(us * factor(c))) for c, us in zip(half, predicted, strict=True)]
    )
    others = [config for config in PROBLEM.candidates if config not in half]
    expected_us, spread = residual.expected(residual.points(others))
    ratios = expected_us / np.array(PROBLEM.predicted_us(others))
    deep = [ratio for config, ratio in zip(others, ratios, strict=True) if config.stages > 3]
    rest = [ratio for config, ratio in zip(others, ratios, strict=True) if config.stages <= 3]
    assert statistics.median(deep) > 2.0
    assert statistics.median(rest) < 1.5
    nothing_known = Residual(problem())
    assert (spread < nothing_known.expected(nothing_known.points(others))[1]).all()


def test_hope_is_greatest_where_least_is_known() -> None:
    residual = Residual(problem())
    first, *others = PROBLEM.candidates
    (predicted_us,) = PROBLEM.predicted_us([first])
    residual.observe([(first, Timing.exact(predicted_us))])
    points = residual.points([first, *others])
    expected_us, spread = residual.expected(points)
    hopes = np.log(expected_us / residual.hopeful_us(points))
    assert hopes == pytest.approx(0.5 * spread)
    assert hopes.argmin() == 0, "what was timed is known best"
    assert hopes.max() > 1.2 * hopes[0]


def test_faults_of_the_device_say_nothing_of_a_configuration() -> None:
    first, second = PROBLEM.candidates[:2]
    for fault in Fault:
        residual = Residual(problem())
        residual.observe([(first, Failure(fault=fault, reason="it has none"))])
        expected_us, _ = residual.expected(residual.points([first, second]))
        is_slower = bool((expected_us > np.array(PROBLEM.predicted_us([first, second]))).all())
        assert is_slower == (fault not in BLAMELESS)


class Walk:
    """Moves to a random legal neighbour of the best so far: a strategy of another kind."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        (self._space,) = problem.spaces
        self._rng = rng
        self._seen: set[Cutlass2Config] = set()
        self._best = (float("inf"), problem.candidates[-1])

    def propose(self, count: int) -> list[Cutlass2Config]:
        found = []
        near = [self._best[1], *self._space.neighbours(self._best[1])]
        near += [self._space.random(self._rng) for _ in range(200)]
        # Repair: of what is proposed, the least illegal first.
        for config in sorted(near, key=lambda each: (self._space.penalty(each), each)):
            if config not in self._seen and len(found) < count:
                self._seen.add(config)
                found.append(config)
        return found

    def observe(self, results: Sequence[Observation]) -> None:
        times = [(o.median_us, c) for c, o in results if isinstance(o, Timing)]
        self._best = min([self._best, *times])


def test_a_strategy_that_moves_needs_no_more_than_the_interface(tmp_path: Path) -> None:
    bench = FakeBench()
    with Database(tmp_path / "records.sqlite") as database:
        report = Session(
            [Task(workload=GEMM)],
            bench,
            database,
            Budget(trials=60),
            lock_folder=tmp_path,
            options=SessionOptions(strategy=Walk, level=Level.FULL),
        ).run()
    assert report.measured == 60
    assert all(SPACE.penalty(trial.config) == 0 for trial in bench.trials), "never an illegal one"
    (result,) = report.results
    assert result.best is not None
    assert result.best.timing.median_us == min(map(formula_us, bench.trials))


def test_the_chosen_strategy_serves_every_round_and_every_workload(tmp_path: Path) -> None:
    asked: list[SearchProblem] = []

    def last_first(problem: SearchProblem, rng: random.Random) -> InOrder:
        asked.append(problem)
        return InOrder(problem.candidates[::-1])

    bench = FakeBench()
    relu = Workload.of(GEMM.single.problem, biased(relu=True))
    with Database(tmp_path / "records.sqlite") as database:
        Session(
            [Task(workload=relu), Task(workload=FUSED, is_alternative=True)],
            bench,
            database,
            Budget(trials=10_000),
            lock_folder=tmp_path,
            options=SessionOptions(strategy=last_first, level=Level.QUICK),
        ).run()
    # Round one ranks plain kernels, round two times both as they ship.
    assert {problem.workload for problem in asked} == {relu.plain, relu, FUSED}
    first = {problem.workload: problem for problem in reversed(asked)}
    for workload, problem in first.items():
        tried = [trial.config for trial in bench.trials if trial.workload == workload]
        assert tried == list(problem.candidates[::-1])
        assert [space.family for space in problem.spaces] == [
            "b2b" if workload.is_fused else "cutlass2"
        ]


def state(trials: int, weight: int = 1, best_us: float | None = None, **more) -> TaskState:
    return TaskState(
        kind=kind_of(GEMM),
        flops=GEMM.flops,
        uses=(weight,),
        expected_us=more.pop("expected_us", 10.0),
        trials=trials,
        history_us=(None, best_us),
        history_trials=(0, trials),
        exhausted=more.pop("exhausted", False),
    )


def test_trials_are_granted_by_share() -> None:
    scheduler = ByWeight()
    assert scheduler.next_task([]) is None
    assert scheduler.next_task([state(0, exhausted=True)]) is None
    assert scheduler.next_task([state(9), state(0, exhausted=True)]) == 0
    assert scheduler.next_task([state(1), state(0)]) == 1, "everyone has one first"
    assert scheduler.next_task([state(3, weight=2), state(2)]) == 0
    assert scheduler.next_task([state(3), state(2, best_us=100.0)]) == 1
    assert scheduler.next_task([state(3, expected_us=100.0), state(2, best_us=10.0)]) == 0
