"""Decide which task of a session gets the next trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """The progress of a task.

    `kind` is equal for tasks whose kernels behave alike. `flops` are the operations of a launch.
    `uses` is the number of runs by each model of the session, or a substitute for alternatives.
    `expected_us` is the cost model's time. `history_us` has the best time before each batch of
    trials and now, None before the first success; `history_trials` has the number of trials at each
    of these. An `exhausted` task has nothing to propose, for now or forever.
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
        """The best time so far, or None."""
        return self.history_us[-1] if self.history_us else None

    @property
    def time_us(self) -> float:
        """The best time so far, or the expected time before the first success."""
        return self.expected_us if self.best_us is None else self.best_us


class Scheduler(Protocol):
    """Grants trials to tasks, one at a time.

    The trials of a batch are granted before any of them is measured; meanwhile only the state's
    `trials` changes.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """Return the task to grant a trial to, or None if all are exhausted."""
        ...


class ByWeight:
    """Grant trials in proportion to a task's share of the time; each task gets one first.

    The share is the task's time, weighted by its runs in all models.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """Return the task that is furthest behind its share, or None if all are exhausted."""
        left = [index for index, task in enumerate(tasks) if not task.exhausted]
        return min(left, key=lambda index: (fullness(tasks[index]), index), default=None)


def fullness(task: TaskState) -> tuple[bool, float]:
    """Return whether a task had a trial, and its trials divided by its total time in all models."""
    return bool(task.trials), task.trials / (sum(task.uses) * task.time_us)


def kind_of(workload: Workload) -> Hashable:
    """Return a key that is equal for workloads of the same operations on the same types."""
    return tuple((layer.problem.kind, layer.problem.in_dtype) for layer in workload.layers)
