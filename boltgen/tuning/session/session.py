"""Run a tuning session: propose, measure and record, until the budget is spent.

Arrow: from tasks to records, through a bench. Every outcome is stored before the next one is
requested: no end of a session loses measurements, and the next session continues.

Round one ranks the kernels of every workload without its epilogue. Round two times launches of the
fastest kernels with the epilogue, so that the chosen launch was measured as it ships. Back-to-back
layers are only in round two. TVM's own kernels are tasks of both rounds, with their own bench.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from boltgen.arch import arch_named
from boltgen.cost.model import serving
from boltgen.families.family import Config, Level
from boltgen.families.registry import kernel_spec, order
from boltgen.families.source import kernel_symbol
from boltgen.families.trial import Trial
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest
from boltgen.ir.outcome import (
    BLAMELESS,
    DeviceIdentity,
    DeviceKind,
    Failure,
    Fault,
    Outcome,
    Timing,
)
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task, distinct
from boltgen.tuning.database.database import Best, Database
from boltgen.tuning.database.records import Record
from boltgen.tuning.device.bench import Bench
from boltgen.tuning.device.clocks import ClockWatch
from boltgen.tuning.device.lock import device_lock
from boltgen.tuning.rest.tasks import AnyTrial, Rest, RestSearch, RestTrial
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.candidates import Field
from boltgen.tuning.session.course import Courses
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.progress import Observer, Quiet
from boltgen.tuning.session.report import SessionReport, TaskResult
from boltgen.tuning.session.scheduler import TaskState
from boltgen.tuning.session.search import Search, times_us
from boltgen.tuning.session.transfer import Elsewhere
from boltgen.tuning.session.warm_start import recall
from boltgen.tuning.strategies.experience import Experience

# The part of the budget for round one before round two begins; each round may use the other's
# remainder. A choice.
_FIELD_SHARE = 0.7
# The trials that the bench gets at once: enough to keep compilers busy while the device is.
_BATCH = 64

_AnySearch: TypeAlias = Search | RestSearch


class Session:
    """A session that tunes `tasks` on a bench into a database; `run` it, or iterate over `steps`.

    `rest` has TVM's own kernels, timed on the same device. `lock_folder` is common to the sessions
    of all processes. `clock` returns seconds, `now` the date and time.

    Raises:
        NoLegalConfigError: a task has no legal configuration on the bench's device.
        UnknownArchError: the device's architecture is not in the table.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        bench: Bench,
        database: Database,
        budget: Budget,
        *,
        lock_folder: Path,
        options: SessionOptions | None = None,
        rest: Rest | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self.tasks = distinct(tasks)
        self.device = bench.device
        self.toolchain = bench.toolchain
        self._bench = bench
        self._rest = rest
        self._database = database
        self._budget = budget
        self._lock_folder = lock_folder
        self._options = options or SessionOptions()
        self._observer = observer or Quiet()
        self._clock = clock
        self._now = now
        self._arch = arch_named(self.device.arch)
        self._fields: dict[Workload, Field] = {}
        self._opened: dict[Workload, Field] = {}
        self._model = serving(self._options.cost_model, self._arch, self._observer.warn)
        self._experience = Experience()
        for task in self.tasks:
            field = Field(task.workload, self._arch, self._options.level, self._model)
            self._fields[task.workload] = field
            if field.ranking is not None:
                # Workloads with the same ranking share the field of the first.
                self._opened.setdefault(field.ranking, field)
        self._known: dict[Workload, dict[Config, Outcome]] = {}
        # Workloads whose known outcomes belong to a kernel that this session has not compiled.
        self._taken: dict[KernelSpec, set[Workload]] = {}
        self._kernels: dict[KernelSpec, str] = {}
        self._is_outdated = False
        self._elsewhere = Elsewhere(database, self.device, self.toolchain)
        self._courses = Courses()
        self._watch = ClockWatch()
        self._run = tuple(task for task in self.tasks if not task.is_alternative)
        self._runs = {task.workload: task.occurrences for task in self._run}
        self._models = self._options.runs or (self._runs,)
        self._totals_us: dict[Workload, float] = {}
        self._started = 0.0
        self._measured = self._failed = self._reused = 0
        self._stopped: str | None = None
        self._rest_searches: Sequence[RestSearch] = rest.searches if rest else ()
        self._resume_rest()

    def run(self) -> SessionReport:
        """Tune until the budget is spent, nothing is left to try, or the device is lost.

        Raises:
            TuningError: another session uses the device, and this one must not wait.
            DatabaseError: an outcome cannot be written; earlier ones are stored.
        """
        for _ in self.steps():
            pass
        return self.report()

    def steps(self) -> Iterator[tuple[AnyTrial, Outcome]]:
        """Tune as `run` does, and yield every outcome after it is stored.

        A caller that stops iterating ends the session; `report` then has the results.
        """
        with device_lock(
            self._bench.lock_name,
            self._lock_folder,
            wait=self._options.wait,
            tell=self._observer.warn,
        ):
            self._started = self._clock()
            totals = {task.workload: self._result(task).total_us for task in self._run}
            self._totals_us |= {each: us for each, us in totals.items() if us is not None}
            if short := self._budget.shortfall(list(totals.values()).count(None), _FIELD_SHARE):
                self._observer.warn(short)
            self._observer.begin(self._budget, len(self._run))
            try:
                yield from self._rounds()
            finally:
                self._observer.end()

    def report(self) -> SessionReport:
        """Return the current results of the tasks, and the counts of this session."""
        return SessionReport(
            device=self.device,
            results=tuple(self._result(task) for task in self.tasks),
            measured=self._measured,
            failed=self._failed,
            reused=self._reused,
            seconds=self._clock() - self._started,
            stopped=self._stopped,
            drift=self._watch.summary(),
            rest=tuple(search.result for search in self._rest_searches),
        )

    def _result(self, task: Task) -> TaskResult:
        known = self._outcomes(task.workload)
        timed = [(config, o) for config, o in known.items() if isinstance(o, Timing)]
        best = min(timed, default=None, key=lambda each: (each[1].median_us, order(each[0])))
        return TaskResult(
            task=task,
            best=Best(config=best[0], timing=best[1]) if best else None,
            timed=len(timed),
            failures=tuple(
                o for o in known.values() if isinstance(o, Failure) and o.fault not in BLAMELESS
            ),
            course=self._courses.of(task.workload),
        )

    def _outcomes(self, workload: Workload) -> dict[Config, Outcome]:
        """Return the known outcomes of a workload; the database is queried once."""
        if workload not in self._known:
            found = self._database.outcomes(workload, self.device, self.toolchain)
            self._known[workload] = found
            self._reused += len(found)
            for config in found:
                spec = kernel_spec(workload, config, self.device.arch)
                if spec not in self._kernels:
                    self._taken.setdefault(spec, set()).add(workload)
        return self._known[workload]

    def _rounds(self) -> Iterator[tuple[AnyTrial, Outcome]]:
        yield from self._both_rounds(beyond=False)
        # All listed configurations are known. A table of records has no others.
        has_more = self.device.kind is not DeviceKind.RECORDED and not self._is_over(1.0)
        if self._options.level is Level.FULL and has_more:
            yield from self._both_rounds(beyond=True)

    def _both_rounds(self, *, beyond: bool) -> Iterator[tuple[AnyTrial, Outcome]]:
        """Run both rounds alternately until the budget is spent or nothing is left to try."""
        opening = self._opening_searches(beyond)
        share = _FIELD_SHARE
        while True:
            before = self._measured
            yield from self._round([*opening, *self._rest_searches], share)
            yield from self._round([*self._final_searches(beyond), *self._rest_searches], 1.0)
            if self._is_outdated:
                opening, self._is_outdated = self._opening_searches(beyond), False
            idle = self._measured == before
            if self._is_over(1.0) or (idle and share == 1.0):
                return
            # Round two has nothing to time, so round one gets more of the budget.
            share = 1.0 if idle else 1.0 - (1.0 - share) * (1.0 - _FIELD_SHARE)

    def _opening_searches(self, beyond: bool) -> list[Search]:
        """Return the searches of round one: one for every workload that ranks kernels."""
        ranked = [
            replace(task, workload=ranking)
            for task in self.tasks
            if (ranking := self._fields[task.workload].ranking) is not None
        ]
        searches = []
        for task in distinct(ranked):
            field = self._opened[task.workload]
            served = [w for w, each in self._fields.items() if each.ranking == task.workload]
            searches.append(self._search(task, field, field.opening(), served, beyond=beyond))
        return searches

    def _final_searches(self, beyond: bool) -> list[Search]:
        """Return the searches of round two: the best kernels' launches for every task."""
        searches = []
        for task in self.tasks:
            field = self._fields[task.workload]
            ranked = self._outcomes(field.ranking) if field.ranking is not None else {}
            finalists = field.finalists(times_us(ranked))
            searches.append(self._search(task, field, finalists, [task.workload], beyond=beyond))
        return searches

    def _search(
        self,
        task: Task,
        field: Field,
        configs: tuple[Config, ...],
        served: Sequence[Workload],
        *,
        beyond: bool,
    ) -> Search:
        """Return a search for a task whose kernels also serve the workloads `served`."""
        (expected_us,) = field.predicted_us(task.workload, configs[:1])
        rng = random.Random(f"{self._options.seed}/{digest(task.workload)}")
        known = self._outcomes(task.workload)
        searched = field.searched(task.workload, configs, self._experience, beyond=beyond)
        recall(searched, known, self._elsewhere, self._arch, self._model)
        return Search(
            task,
            self._options.strategy(searched, rng),
            searched.spaces,
            known,
            expected_us=expected_us,
            uses=self._uses(task, expected_us, served),
            candidates=configs,
            first=self._elsewhere.first(task.workload, configs),
        )

    def _uses(
        self, task: Task, expected_us: float, served: Sequence[Workload]
    ) -> tuple[float, ...]:
        """Return the number of runs by each model of the workloads that a task's kernels serve.

        An alternative counts as much as an average workload, however slow it is.
        """
        if task.is_alternative:
            each = self._mean_share_us / expected_us / len(self._models)
            return (each,) * len(self._models)
        return tuple(
            float(sum(model.get(workload, 0) for workload in served)) for model in self._models
        )

    @cached_property
    def _mean_share_us(self) -> float:
        """The mean of the model's workloads: predicted time multiplied by the number of runs."""
        shares_us = [task.occurrences * self._fields[task.workload].best_us for task in self._run]
        return sum(shares_us) / len(shares_us) if shares_us else 1.0

    def _round(
        self, searches: list[_AnySearch], share: float
    ) -> Iterator[tuple[AnyTrial, Outcome]]:
        """Measure proposals of the searches until the part `share` of the budget is spent."""
        while not self._is_over(share) and not self._is_outdated:
            batch = self._batch(searches, min(_BATCH, self._trials_left(share)))
            if not batch:
                return
            yield from self._measure(batch, share)

    def _batch(self, searches: list[_AnySearch], most: int) -> dict[AnyTrial, _AnySearch]:
        """Return at most `most` new trials: every search's first, then every search's second."""
        batch: dict[AnyTrial, _AnySearch] = {}
        while len(batch) < most:
            grants = self._grants([search.state for search in searches], most - len(batch))
            if not grants:
                break
            proposed = [(searches[i], searches[i].propose(count)) for i, count in grants.items()]
            for turn in range(max(grants.values())):
                batch |= {trials[turn]: s for s, trials in proposed if turn < len(trials)}
        return batch

    def _grants(self, states: list[TaskState], most: int) -> dict[int, int]:
        """Return how many of the next `most` trials the scheduler grants to each search."""
        grants: Counter[int] = Counter()
        for _ in range(most):
            chosen = self._options.scheduler.next_task(states)
            if chosen is None:
                break
            grants[chosen] += 1
            states[chosen] = replace(states[chosen], trials=states[chosen].trials + 1)
        return grants

    def _measure(
        self, batch: dict[AnyTrial, _AnySearch], share: float
    ) -> Iterator[tuple[AnyTrial, Outcome]]:
        with closing(self._outcomes_of(list(batch))) as outcomes:
            for trial, outcome in outcomes:
                if isinstance(outcome, Failure) and outcome.fault is Fault.DEVICE_LOST:
                    self._stopped = f"the device was lost: {outcome.reason}"
                    self._observer.warn(self._stopped)
                    return
                self._hear(batch[trial], trial, outcome)
                self._tell(trial, outcome)
                yield trial, outcome
                if self._seconds_are_over(share):
                    return

    def _outcomes_of(
        self, trials: Sequence[AnyTrial]
    ) -> Generator[tuple[AnyTrial, Outcome], None, None]:
        """Yield the outcomes of trials, TVM's kernels first, because they compile faster."""
        if self._rest and (of_rest := [each for each in trials if isinstance(each, RestTrial)]):
            yield from self._rest.run(of_rest)
        yield from self._bench.run([each for each in trials if isinstance(each, Trial)])

    def _hear(self, search: _AnySearch, trial: AnyTrial, outcome: Outcome) -> None:
        """Store an outcome, and tell it to the search that proposed the trial."""
        if isinstance(trial, Trial) and isinstance(search, Search):
            self._remember(trial, outcome)
            self._courses.hear(trial, outcome, search.why(trial.config))
            search.observe(trial.config, outcome)
        elif isinstance(trial, RestTrial) and not isinstance(search, Search):
            self._remember_rest(trial, outcome)
            search.observe(trial, outcome)

    def _resume_rest(self) -> None:
        for search in self._rest_searches:
            known = self._database.rest.outcomes(search.task, self._rest_bench)
            search.resume(known)
            self._reused += len(known)

    @property
    def _rest_bench(self) -> tuple[DeviceIdentity, str]:
        return self.device, self._rest.toolchain if self._rest else ""

    def _remember_rest(self, trial: RestTrial, outcome: Outcome) -> None:
        self._database.rest.add(trial, outcome, self._rest_bench, self._now())
        self._measured += 1
        self._failed += isinstance(outcome, Failure)

    def _remember(self, trial: Trial, outcome: Outcome) -> None:
        if isinstance(outcome, Failure) and outcome.fault in BLAMELESS:
            return
        kernel = self._bench.kernel(trial)
        self._learn(trial.spec(self.device.arch), kernel)
        record = Record(
            trial=trial,
            kernel=kernel,
            device=self.device,
            toolchain=self.toolchain,
            outcome=outcome,
            measured_at=self._now(),
        )
        self._database.add([record])
        self._measured += 1
        self._failed += isinstance(outcome, Failure)

    def _learn(self, spec: KernelSpec, kernel: str) -> None:
        """Drop the outcomes of a kernel that now compiles to another content."""
        if spec in self._kernels:
            return
        self._kernels[spec] = kernel
        self._database.learn({spec: kernel}, self.toolchain)
        void = 0
        for workload in self._taken.pop(spec, ()):
            counts = self._database.outcomes(workload, self.device, self.toolchain)
            known = self._known[workload]
            for config in known.keys() - counts.keys():
                if kernel_spec(workload, config, self.device.arch) == spec:
                    del known[config]
                    void += 1
            self._totals_us.pop(workload, None)
        if void:
            self._reused -= void
            self._is_outdated = True
            self._observer.warn(
                f"{void} records of {kernel_symbol(spec)} are void: the kernel has been compiled "
                "to another one since, and is measured again"
            )

    def _tell(self, trial: AnyTrial, outcome: Outcome) -> None:
        if isinstance(outcome, Timing) and isinstance(trial, Trial):
            if drift := self._watch.observe(outcome):
                self._observer.warn(drift)
            key = trial.workload
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
        """Return the trials that remain of the part `share` of the budget."""
        if self._budget.trials is None:
            return _BATCH
        return math.floor(share * self._budget.trials) - self._measured
