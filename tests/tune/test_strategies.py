"""Strategies and schedulers: those that are there, and that the interfaces carry others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from boltgen.arch import arch_named
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Gemm
from boltgen.space.config import Cutlass2Config
from boltgen.space.knobs import ConfigSpace
from boltgen.space.library import Level
from boltgen.tune.budget import Budget
from boltgen.tune.database import Database
from boltgen.tune.field import Launches
from boltgen.tune.outcome import Timing
from boltgen.tune.scheduler import ByWeight, TaskState
from boltgen.tune.select import Task
from boltgen.tune.session import Session, SessionOptions
from boltgen.tune.strategies.exhaustive import exhaustive
from boltgen.tune.strategies.random_search import random_search
from boltgen.tune.strategies.strategy import Observation, SearchProblem
from tests.tune.fakes import FakeBench, formula_us

SM80 = arch_named("sm_80")
GEMM = Gemm(m=1024, n=1024, k=1024)
LAUNCHES = Launches(GEMM, SM80, Level.FULL)
PROBLEM = SearchProblem(
    problem=GEMM,
    epilogue=ElementwiseGraph(),
    candidates=LAUNCHES.field(),
    space=ConfigSpace.of(GEMM, SM80),
)


def test_exhaustive_search_tries_the_likeliest_first() -> None:
    strategy = exhaustive(PROBLEM, random.Random(0))
    first = strategy.propose(5)
    strategy.observe([])
    rest = strategy.propose(10_000)
    assert (*first, *rest) == PROBLEM.candidates
    assert strategy.propose(1) == []
    times = [LAUNCHES.predicted_us(config, ElementwiseGraph()) for config in PROBLEM.candidates]
    assert times == sorted(times)
    assert all(PROBLEM.space.penalty(config) == 0 for config in PROBLEM.candidates)


def test_random_search_tries_all_in_an_order_of_its_seed() -> None:
    orders = [random_search(PROBLEM, random.Random(seed)).propose(10_000) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(PROBLEM.candidates)


class Walk:
    """Moves to a random legal neighbour of the best so far: a strategy of another kind."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        self._space = problem.space.pinned(swizzle=1, split_k=1)
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
            [Task(problem=GEMM, epilogue=ElementwiseGraph())],
            bench,
            database,
            Budget(trials=60),
            lock_folder=tmp_path,
            options=SessionOptions(strategy=Walk, level=Level.FULL),
        ).run()
    assert report.measured == 60
    space = ConfigSpace.of(GEMM, SM80)
    assert all(space.penalty(trial.config) == 0 for trial in bench.trials), "never an illegal one"
    (result,) = report.results
    assert result.best is not None
    assert result.best.timing.median_us == min(map(formula_us, bench.trials))


def state(trials: int, weight: int = 1, best_us: float | None = None, **more) -> TaskState:
    return TaskState(
        problem=GEMM,
        epilogue=ElementwiseGraph(),
        weight=weight,
        expected_us=more.pop("expected_us", 10.0),
        trials=trials,
        history_us=(None, best_us),
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
