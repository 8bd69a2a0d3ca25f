"""Which task of a model gets the next trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boltgen.ir.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """How far a task has come.

    `weight` is how often the model runs it, or what stands for that where it does not,
    `expected_us` the analytical model's time of it.
    `history_us` has its best time before each batch of its trials and now, None before the first
    success; the gradient of that is what Ansor's scheduler follows (Zheng et al., section 6).
    `exhausted` has nothing to propose, for now or at all.
    """

    workload: Workload
    weight: float
    expected_us: float
    trials: int
    history_us: tuple[float | None, ...]
    exhausted: bool


class Scheduler(Protocol):
    """Grants trials to tasks, one at a time.

    What is granted until the session has a batch is measured together: until then only `trials`
    of the state changes.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """The task to grant a trial to; None if all are exhausted."""
        ...


class ByWeight:
    """Trials in proportion to a task's share of the model's time; everyone has one first.

    A task's share is `weight` times its best time so far, or its expected time before that.
    """

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """The task that is furthest behind its share."""
        left = [index for index, task in enumerate(tasks) if not task.exhausted]
        return min(left, key=lambda index: (_fullness(tasks[index]), index), default=None)


def _fullness(task: TaskState) -> tuple[bool, float]:
    timed = [best for best in task.history_us if best is not None]
    time_us = timed[-1] if timed else task.expected_us
    return bool(task.trials), task.trials / (task.weight * time_us)
