"""A tuning session: proposes, measures, remembers, until the budget is spent.

Arrow: tasks to records, through a bench. Every outcome is in the database before the next one is
asked for: however a session ends, nothing measured is lost, and the next one goes on from there.

Round one ranks the kernels of every problem with the plain epilogue, round two times launches of
the fastest with the task's own epilogue: what is chosen was measured as it ships. Chains of
products are in round two alone, each as one kernel.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from boltgen.arch import arch_named
from boltgen.ir.chain import AnyProblem
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.space.knobs import ConfigSpace
from boltgen.space.library import Level
from boltgen.tune.budget import Budget
from boltgen.tune.chain_field import ChainLaunches
from boltgen.tune.clocks import ClockWatch
from boltgen.tune.database import Best, Database
from boltgen.tune.device_lock import device_lock
from boltgen.tune.field import Launches
from boltgen.tune.outcome import (
    BLAMELESS,
    Bench,
    DeviceIdentity,
    Failure,
    Fault,
    Outcome,
    Timing,
    Trial,
)
from boltgen.tune.progress import Observer, Quiet
from boltgen.tune.records import Record, kernel_key
from boltgen.tune.scheduler import ByWeight, Scheduler, TaskState
from boltgen.tune.search import Search, times_us
from boltgen.tune.select import AnyTask, ChainTask, Task, distinct, is_run
from boltgen.tune.strategies.exhaustive import InOrder, exhaustive
from boltgen.tune.strategies.strategy import SearchProblem, Strategy, StrategyFactory

# The share of the budget that round one may take before round two has begun; what either leaves
# over goes to the other. A choice.
_FIELD_SHARE = 0.7
# Trials handed to the bench at once: enough for compilers to be busy while the device is.
_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session goes about it.

    The field are the kernels of a library of that `level`. `wait` for another session on the same
    device; `seed` decides all that is random.
    """

    strategy: StrategyFactory = exhaustive
    scheduler: Scheduler = field(default_factory=ByWeight)
    level: Level = Level.STANDARD
    seed: int = 0
    wait: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What is known of a task: its best launch, how many launches have a time, and failures."""

    task: AnyTask
    best: Best | None
    timed: int
    failures: tuple[Failure, ...]

    @property
    def total_us(self) -> float | None:
        """The best time, as often as the model runs the task."""
        return self.best.timing.median_us * self.task.occurrences if self.best else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What a session on `device` did.

    `measured` counts new records, `failed` those of them that are failures, `reused` outcomes that
    the database had before. `stopped` says what
    ended it before its time, `drift` how the device's clock behaved, where there is something to
    say.
    """

    device: DeviceIdentity
    results: tuple[TaskResult, ...]
    measured: int
    failed: int
    reused: int
    seconds: float
    stopped: str | None
    drift: str | None

    @property
    def model_us(self) -> float | None:
        """Time of all products as often as the model runs them, each by itself; None if one has
        no time.
        """
        products = [each.total_us for each in self.results if is_run(each.task)]
        totals = [total_us for total_us in products if total_us is not None]
        return sum(totals) if len(totals) == len(products) else None


class Session:
    """Tunes `tasks` on a bench, into a database; `run` it, or iterate over `steps`.

    `lock_folder` is where sessions of all processes find each other. `clock` gives seconds, `now`
    the time of day.

    Raises:
        NoLegalConfigError: a task has no legal configuration on the bench's device.
        UnknownArchError: the device's architecture is not in the table.
    """

    def __init__(
        self,
        tasks: Sequence[AnyTask],
        bench: Bench,
        database: Database,
        budget: Budget,
        *,
        lock_folder: Path,
        options: SessionOptions | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self.tasks = distinct(tasks)
        self.device = bench.device
        self.toolchain = bench.toolchain
        self._bench = bench
        self._database = database
        self._budget = budget
        self._lock_folder = lock_folder
        self._options = options or SessionOptions()
        self._observer = observer or Quiet()
        self._clock = clock
        self._now = now
        self._arch = arch_named(self.device.arch)
        self._products = tuple(task for task in self.tasks if isinstance(task, Task))
        self._fields = {
            t.problem: Launches(t.problem, self._arch, self._options.level) for t in self._products
        }
        self._launches: dict[AnyProblem, Launches | ChainLaunches] = dict(self._fields.items())
        for task in self.tasks:
            if isinstance(task, ChainTask):
                self._launches[task.chain] = ChainLaunches(task.chain, self._arch)
        # Configurations of a problem are all of one kind, which only its launches know.
        self._known: dict[tuple[AnyProblem, ElementwiseGraph], dict[Any, Outcome]] = {}
        self._watch = ClockWatch()
        self._run_products = tuple(task for task in self._products if is_run(task))
        self._runs = {(t.problem, t.epilogue): t.occurrences for t in self._run_products}
        self._totals_us: dict[tuple[AnyProblem, ElementwiseGraph], float] = {}
        self._started = 0.0
        self._measured = self._failed = self._reused = 0
        self._stopped: str | None = None

    def run(self) -> SessionReport:
        """Tune until the budget is spent, nothing is left to try, or the device is lost.

        Raises:
            TuningError: another session has the device, and this one is not to wait.
            DatabaseError: an outcome cannot be written; those before it are.
        """
        for _ in self.steps():
            pass
        return self.report()

    def steps(self) -> Iterator[tuple[Trial, Outcome]]:
        """Tune as `run` does, and give every outcome when it is in the database.

        Whoever stops asking ends the session; `report` then tells what was found.
        """
        with device_lock(
            self._bench.lock_name,
            self._lock_folder,
            wait=self._options.wait,
            tell=self._observer.warn,
        ):
            self._started = self._clock()
            for result in map(self._result, self._run_products):
                if result.total_us is not None:
                    self._totals_us[result.task.problem, result.task.epilogue] = result.total_us
            self._observer.begin(self._budget, len(self._run_products))
            try:
                yield from self._rounds()
            finally:
                self._observer.end()

    def report(self) -> SessionReport:
        """What is known of the tasks now, and what this session did."""
        return SessionReport(
            device=self.device,
            results=tuple(self._result(task) for task in self.tasks),
            measured=self._measured,
            failed=self._failed,
            reused=self._reused,
            seconds=self._clock() - self._started,
            stopped=self._stopped,
            drift=self._watch.summary(),
        )

    def _result(self, task: AnyTask) -> TaskResult:
        known = self._outcomes(task.problem, task.epilogue)
        timed = [(o.median_us, config, o) for config, o in known.items() if isinstance(o, Timing)]
        best = min(timed, default=None, key=lambda each: each[:2])
        return TaskResult(
            task=task,
            best=Best(config=best[1], timing=best[2]) if best else None,
            timed=len(timed),
            failures=tuple(
                o for o in known.values() if isinstance(o, Failure) and o.fault not in BLAMELESS
            ),
        )

    def _outcomes(self, problem: AnyProblem, epilogue: ElementwiseGraph) -> dict[Any, Outcome]:
        """What is known of a problem with an epilogue; the database is asked once."""
        key = (problem, epilogue)
        if key not in self._known:
            found = self._database.outcomes(problem, epilogue, self.device, self.toolchain)
            self._known[key] = found
            self._reused += len(found)
        return self._known[key]

    def _rounds(self) -> Iterator[tuple[Trial, Outcome]]:
        field_searches = self._field_searches()
        share = _FIELD_SHARE
        while True:
            before = self._measured
            yield from self._round(field_searches, share)
            yield from self._round(self._final_searches(), 1.0)
            idle = self._measured == before
            if self._is_over(1.0) or (idle and share == 1.0):
                return
            # Round two has nothing left to time: more of the budget is round one's.
            share = 1.0 if idle else 1.0 - (1.0 - share) * (1.0 - _FIELD_SHARE)

    def _field_searches(self) -> list[Search[Any]]:
        """Round one: a search for every distinct problem, with the plain epilogue."""
        plain = [replace(task, epilogue=ElementwiseGraph()) for task in self._products]
        searches = []
        for number, task in enumerate(distinct(plain)):
            problem = task.problem
            candidates = self._fields[problem].field()
            searched = SearchProblem(
                problem=problem,
                epilogue=ElementwiseGraph(),
                candidates=candidates,
                space=ConfigSpace.of(problem, self._arch),
            )
            rng = random.Random(f"{self._options.seed}/{number}")
            strategy = self._options.strategy(searched, rng)
            searches.append(self._search(task, candidates, strategy))
        return searches

    def _final_searches(self) -> list[Search[Any]]:
        """Round two: for every task, launches of the kernels that lead its problem's field."""
        searches = []
        for task in self.tasks:
            field_us = times_us(self._outcomes(task.problem, ElementwiseGraph()))
            candidates = self._launches[task.problem].finalists(task.epilogue, field_us)
            searches.append(self._search(task, candidates, InOrder(candidates)))
        return searches

    def _search(
        self, task: AnyTask, candidates: Sequence[Any], strategy: Strategy[Any]
    ) -> Search[Any]:
        launches = self._launches[task.problem]
        expected_us = launches.predicted_us(candidates[0], task.epilogue)
        return Search(
            task,
            strategy,
            launches.violations,
            self._outcomes(task.problem, task.epilogue),
            expected_us=expected_us,
            weight=self._weight(task, expected_us),
        )

    def _weight(self, task: AnyTask, expected_us: float) -> float:
        """How much a task counts for each microsecond that it takes.

        An alternative has the share of a product of average time, however slow it is itself.
        """
        is_alternative = isinstance(task, Task) and task.is_alternative
        return self._mean_share_us / expected_us if is_alternative else task.occurrences

    @cached_property
    def _mean_share_us(self) -> float:
        """The predicted time of a product of the model, as often as it runs, on average."""
        shares_us = [
            task.occurrences * launches.predicted_us(launches.field()[0], task.epilogue)
            for task in self._run_products
            for launches in (self._fields[task.problem],)
        ]
        return sum(shares_us) / len(shares_us) if shares_us else 1.0

    def _round(self, searches: list[Search[Any]], share: float) -> Iterator[tuple[Trial, Outcome]]:
        """Measure what the searches propose until `share` of the budget is spent."""
        while not self._is_over(share):
            batch = self._batch(searches, min(_BATCH, self._trials_left(share)))
            if not batch:
                return
            yield from self._measure(batch, share)

    def _batch(self, searches: list[Search[Any]], most: int) -> dict[Trial, Search[Any]]:
        """At most so many new trials: every search's first one, then every search's second."""
        batch: dict[Trial, Search[Any]] = {}
        while len(batch) < most:
            grants = self._grants([search.state for search in searches], most - len(batch))
            if not grants:
                break
            proposed = [(searches[i], searches[i].propose(count)) for i, count in grants.items()]
            for turn in range(max(grants.values())):
                batch |= {trials[turn]: s for s, trials in proposed if turn < len(trials)}
        return batch

    def _grants(self, states: list[TaskState], most: int) -> dict[int, int]:
        """How many of the next `most` trials the scheduler gives to each search."""
        grants: Counter[int] = Counter()
        for _ in range(most):
            chosen = self._options.scheduler.next_task(states)
            if chosen is None:
                break
            grants[chosen] += 1
            states[chosen] = replace(states[chosen], trials=states[chosen].trials + 1)
        return grants

    def _measure(
        self, batch: dict[Trial, Search[Any]], share: float
    ) -> Iterator[tuple[Trial, Outcome]]:
        with closing(self._bench.run(list(batch))) as outcomes:
            for trial, outcome in outcomes:
                if isinstance(outcome, Failure) and outcome.fault is Fault.DEVICE_LOST:
                    self._stopped = f"the device was lost: {outcome.reason}"
                    self._observer.warn(self._stopped)
                    return
                self._remember(trial, outcome)
                batch[trial].observe(trial.config, outcome)
                self._tell(trial, outcome)
                yield trial, outcome
                if self._seconds_are_over(share):
                    return

    def _remember(self, trial: Trial, outcome: Outcome) -> None:
        if isinstance(outcome, Failure) and outcome.fault in BLAMELESS:
            return
        record = Record(
            trial=trial,
            kernel=kernel_key(trial, self.device.arch, self.toolchain),
            device=self.device,
            toolchain=self.toolchain,
            outcome=outcome,
            measured_at=self._now(),
        )
        self._database.add([record])
        self._measured += 1
        self._failed += isinstance(outcome, Failure)

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        if isinstance(outcome, Timing):
            if drift := self._watch.observe(outcome):
                self._observer.warn(drift)
            key = (trial.problem, trial.epilogue)
            if key in self._runs:
                total_us = outcome.median_us * self._runs[key]
                self._totals_us[key] = min(total_us, self._totals_us.get(key, total_us))
        totals = self._totals_us.values()
        self._observer.measured(trial, outcome, sum(totals), len(totals))

    def _is_over(self, share: float) -> bool:
        return (
            self._stopped is not None
            or self._seconds_are_over(share)
            or self._trials_left(share) <= 0
        )

    def _seconds_are_over(self, share: float) -> bool:
        seconds = self._budget.seconds
        return seconds is not None and self._clock() - self._started >= share * seconds

    def _trials_left(self, share: float) -> int:
        """How many trials `share` of the budget still has."""
        if self._budget.trials is None:
            return _BATCH
        return math.floor(share * self._budget.trials) - self._measured
