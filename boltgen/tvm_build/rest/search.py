"""Search schedules of a TVM kernel by TVM's MetaSchedule.

Arrow: from a kernel's function to trials of `tuning.rest.tasks`. boltgen's scheduler grants the
trials, not MetaSchedule's.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np
from tvm import tirx
from tvm.target import Target

from boltgen.errors import TuningError
from boltgen.installation import install_command
from boltgen.ir.outcome import Outcome, Timing
from boltgen.running.loaded import last_line
from boltgen.tuning.rest.tasks import RestResult, RestTrial, summary
from boltgen.tuning.session.scheduler import TaskState
from boltgen.tvm_build.rest.schedule import built_in, named, trace_text

# Candidates per request to MetaSchedule. MetaSchedule's defaults (64 candidates, populations of
# 512, four generations) suit larger kernels and sessions of hours: one batch takes two minutes.
_BATCH = 8
_POPULATION, _FRESH, _GENERATIONS = 32, 16, 2
# The search of a kernel ends after this many trials without progress. A choice.
_PATIENCE = 64
# The search ends after this many batches in which MetaSchedule proposes only schedules with known
# times.
_MOST_KNOWN_BATCHES = 4
_NEEDS = ("cloudpickle", "psutil", "xgboost")


def load_tuner() -> Any:
    """Return TVM's tuner.

    Raises:
        TuningError: a package that the tuner needs is missing.
    """
    for name in _NEEDS:
        try:
            importlib.import_module(name)
        except ImportError:
            raise TuningError(
                f"TVM's tuner needs {name}: `{install_command('metaschedule')}`"
            ) from None
    load_intrinsics()
    return importlib.import_module("tvm.s_tir.meta_schedule")


def load_intrinsics() -> None:
    """Define the tensor cores' instructions in TVM, because schedules name them.

    For each definition TVM makes Python search the source lines of all stack frames in every loaded
    module, which takes a minute. TVM does not use the lines, so the search is disabled.
    """
    stack = mock.patch.object(inspect, "stack", partial(inspect.stack, 0))
    with stack, mock.patch.object(inspect, "getsourcefile", inspect.getfile):
        importlib.import_module("tvm.s_tir.tensor_intrin")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTask:
    """A TVM kernel: its launches by each model, and its predicted time and operations."""

    name: str
    identity: str
    function: tirx.PrimFunc
    uses: tuple[float, ...]
    expected_us: float
    flops: int


class RestSearch:
    """See `tuning.rest.RestSearch`.

    `model` is MetaSchedule's cost model, shared by all searches of a session. `warn` receives the
    failures of TVM's tuner.
    """

    def __init__(
        self,
        task: RestTask,
        target: Target,
        model: Any,
        *,
        seed: int = 0,
        warn: Callable[[str], None],
    ) -> None:
        self.task = task.identity
        self._task = task
        self._target = target
        self._model = model
        self._seed = seed
        self._numbers = np.random.RandomState(seed % 2**32).get_state()
        self._warn = warn
        self._built_in = built_in(task.function, target)
        self._known: dict[str, Outcome] = {}
        self._waiting = [self._built_in]
        # MetaSchedule's current batch, by trace.
        self._batch: dict[str, Any] = {}
        self._over = False
        self._granted = 0
        self._best_at = 0
        self._history: list[tuple[int, float | None]] = []

    def resume(self, known: Mapping[str, Outcome]) -> None:
        """Take the outcomes of earlier sessions, which are not measured again."""
        self._known |= known
        self._waiting = [config for config in self._waiting if config not in self._known]

    def propose(self, count: int) -> list[RestTrial]:
        """Return at most `count` trials with unknown outcomes; the call counts as a grant."""
        self._history.append((self._granted, self._best_us))
        for _ in range(_MOST_KNOWN_BATCHES):
            if self._waiting or self._batch or self._over:
                break
            self._next_batch()
        else:
            self._over = True
        given, self._waiting = self._waiting[:count], self._waiting[count:]
        self._granted += len(given)
        return [RestTrial(name=self._task.name, task=self.task, config=config) for config in given]

    def observe(self, trial: RestTrial, outcome: Outcome) -> None:
        """Note the outcome of a proposed trial."""
        before = self._best_us
        self._known[trial.config] = outcome
        if self._best_us != before:
            self._best_at = self._granted
        self._over |= self._granted - self._best_at >= _PATIENCE
        self._answer()

    @property
    def state(self) -> TaskState:
        """Return the state by which a scheduler decides."""
        history = (*self._history, (self._granted, self._best_us))
        waits = not self._waiting and bool(self._batch)
        return TaskState(
            kind=self.task,
            flops=self._task.flops,
            uses=self._task.uses,
            expected_us=self._task.expected_us,
            trials=self._granted,
            history_us=tuple(best for _, best in history),
            history_trials=tuple(trials for trials, _ in history),
            exhausted=(self._over and not self._waiting) or waits or self._first_is_out,
        )

    @property
    def result(self) -> RestResult:
        """Return the times that are known now."""
        return summary(self._task.name, sum(self._task.uses), self._known, self._built_in)

    @property
    def _first_is_out(self) -> bool:
        """Whether the built-in schedule is being timed, whose results others must equal."""
        return not self._waiting and self._built_in not in self._known

    @property
    def _best_us(self) -> float | None:
        times = [each.median_us for each in self._known.values() if isinstance(each, Timing)]
        return min(times, default=None)

    def _next_batch(self) -> None:
        if not isinstance(self._known.get(self._built_in), Timing):
            self._over = True  # nothing to compare results with
            return
        try:
            with self._seeded():
                candidates = self._tuner.generate_measure_candidates()
        except Exception as error:  # TVM raises any type for a kernel without rules
            self._warn(f"TVM's tuner has no schedules of {self._task.name}: {last_line(error)}")
            candidates = None
        if not candidates:
            self._over = True
            return
        self._batch = {trace_text(each.sch.trace): each for each in candidates}
        self._waiting = [config for config in self._batch if config not in self._known]
        self._answer()

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Give NumPy's global generator this search's state during the block.

        MetaSchedule's cost model uses the generator until it has a hundred results.
        """
        others = np.random.get_state()
        np.random.set_state(self._numbers)
        try:
            yield
        finally:
            self._numbers = np.random.get_state()
            np.random.set_state(others)

    def _answer(self) -> None:
        """Give MetaSchedule the results of a batch when all are known."""
        if not self._batch or not self._batch.keys() <= self._known.keys():
            return
        batch, self._batch = self._batch, {}
        results = [self._result(self._known[config]) for config in batch]
        candidates = list(batch.values())
        self._tuner.notify_runner_results(candidates, results)
        self._model.update(self._tuner, candidates, results)
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs is not None:
                self._commit(candidate, result)

    def _commit(self, candidate: Any, result: Any) -> None:
        database = self._meta.database
        record = database.TuningRecord(
            candidate.sch.trace,
            self._workload,
            result.run_secs,
            self._target,
            candidate.args_info,
        )
        self._memory.commit_tuning_record(record)

    def _result(self, outcome: Outcome) -> Any:
        made = self._meta.runner.RunnerResult
        if isinstance(outcome, Timing):
            return made([1e-6 * outcome.median_us], None)
        return made(None, outcome.reason)

    @cached_property
    def _meta(self) -> Any:
        return load_tuner()

    @cached_property
    def _memory(self) -> Any:
        return self._meta.database.MemoryDatabase()

    @cached_property
    def _workload(self) -> Any:
        return self._memory.commit_workload(self._tuner.mod)

    @cached_property
    def _tuner(self) -> Any:
        """MetaSchedule's search, initialised."""
        meta = self._meta
        rules = [
            rule
            for rule in meta.schedule_rule.ScheduleRule.create("cuda")
            if not isinstance(rule, meta.schedule_rule.ApplyCustomRule)  # not for CUDA
        ]
        tuner = meta.TuneContext(
            named(self._task.function),
            target=self._target,
            space_generator=meta.space_generator.PostOrderApply(sch_rules=rules),
            search_strategy=meta.search_strategy.EvolutionarySearch(
                population_size=_POPULATION,
                init_min_unmeasured=_FRESH,
                genetic_num_iters=_GENERATIONS,
            ),
            task_name=self._task.name,
            rand_state=1 + self._seed % (2**31 - 2),
            num_threads=1,
            logger=logging.getLogger(__name__),
        )
        tuner.pre_tuning(
            max_trials=2**31 - 1,
            num_trials_per_iter=_BATCH,
            design_spaces=tuner.generate_design_space(),
            database=self._memory,
            cost_model=self._model,
        )
        return tuner
