"""Decide which task of a model gets the next trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The progress of a task.

    `kind` is equal for tasks whose kernels say something of each other's, `flops` the operations of
    a launch. `uses` are how often each model of the session runs it, or what stands for that where
    none does, `expected_us` the cost model's time of it. `history_us` has its best time before each
    batch of its trials and now, None before the first success, `history_trials` how many it had had
    then. `exhausted` has nothing to propose, for now or at all.
    """

    kind: Hashable
    flops: int
    uses: tuple[float, ...]
    expected_us: float
    trials: int
    history_us: tuple[float | None, ...]
    history_trials: tuple[int, ...]
    exhausted: bool

    @property
    def best_us(self) -> float | None:
        """Its best time so far."""
        return self.history_us[-1] if self.history_us else None

    @property
    def time_us(self) -> float:
        """Its best time so far, or the expected time before any trial."""
        return self.expected_us if self.best_us is None else self.best_us


class Scheduler(Protocol):
    """Grant trials to tasks, one at a time.

    Trials of a batch are granted before any of them is measured: meanwhile only `trials` of the
    state changes.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """Return the task to grant a trial to, or None if all are exhausted."""
        ...


class ByWeight:
    """Trials in proportion to a task's share of the model's time; everyone has one first.

    A task's share is its time as often as all models run it.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """The task that is furthest behind its share."""
        left = [index for index, task in enumerate(tasks) if not task.exhausted]
        return min(left, key=lambda index: (fullness(tasks[index]), index), default=None)


def fullness(task: TaskState) -> tuple[bool, float]:
    """Whether a task had a trial, and its trials over its share of all models' time."""
    return bool(task.trials), task.trials / (sum(task.uses) * task.time_us)


def kind_of(workload: Workload) -> Hashable:
    """Return a key that is equal for workloads of the same operations on the same types."""
    return tuple((layer.problem.kind, layer.problem.in_dtype) for layer in workload.layers)
