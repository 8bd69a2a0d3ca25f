"""Ansor's scheduler: the next trial goes to the task from which the objective gains most.

Source: Zheng et al., Ansor, OSDI 2020, section 6.2: the gradient of the objective over a task's
trials, estimated from its last gains and from optimistic guesses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from boltgen.tuning.session.objectives import Objective, Total
from boltgen.tuning.session.scheduler import TaskState, fullness

# The paper's alpha: the weight of the last trials' gain; guessed gains have the remaining weight.
_TRUST = 0.2
# The paper's beta: a task may reach this many times the time that it would take at the rate (FLOP
# per second) of the fastest similar task.
_SIMILAR = 2.0
# The paper's epsilon: the probability that the next task is drawn at random.
_ANY = 0.05


class Gradient:
    """See the module. Tasks that got no faster in their last `patience` trials rest (f4)."""

    def __init__(
        self, objective: Objective | None = None, *, patience: int | None = None, seed: int = 0
    ) -> None:
        self._objective = objective or Total()
        self._patience = patience
        self._rng = random.Random(seed)
        self._began_us: list[float] = []

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """Return the first task without a trial, else the task with the largest estimated gain."""
        times_us = [0.0] * max((len(task.uses) for task in tasks), default=0)
        for task in tasks:
            for model, uses in enumerate(task.uses):
                times_us[model] += uses * task.time_us
        if len(self._began_us) != len(times_us):
            self._began_us = list(times_us)
        left = [i for i, task in enumerate(tasks) if not task.exhausted and not self._rests(task)]
        if not left:
            return None
        if any(not tasks[i].trials for i in left):
            return min(left, key=lambda i: (fullness(tasks[i]), i))
        if self._rng.random() < _ANY:
            return self._rng.choice(left)
        slopes = self._objective.slopes(times_us, self._began_us)
        gains = [_gain(tasks[i], tasks, slopes) for i in left]
        most = max(gains)
        # If nothing can be gained, as all latency targets are met, trials follow the tasks' times.
        best = [i for i, gain in zip(left, gains, strict=True) if gain == most]
        return min(best, key=lambda i: (fullness(tasks[i]), i))

    def _rests(self, task: TaskState) -> bool:
        if self._patience is None or task.best_us is None:
            return False
        reached = next(
            trials
            for trials, best in zip(task.history_trials, task.history_us, strict=True)
            if best == task.best_us
        )
        return task.trials - reached >= self._patience


def _gain(task: TaskState, tasks: Sequence[TaskState], slopes: Sequence[float]) -> float:
    """Estimate the reduction of the objective by one more trial of a task."""
    weight = sum(slope * uses for slope, uses in zip(slopes, task.uses, strict=True))
    return weight * (_TRUST * _brought_us(task) + (1.0 - _TRUST) * _promised_us(task, tasks))


def _brought_us(task: TaskState) -> float:
    """Return the reduction of the task's time per trial of the last batch."""
    pairs = zip(task.history_trials, task.history_us, strict=True)
    timed = [(trials, best) for trials, best in pairs if best is not None]
    for trials, best in reversed(timed[:-1]):
        if trials < timed[-1][0]:
            return (best - timed[-1][1]) / (timed[-1][0] - trials)
    return 0.0


def _promised_us(task: TaskState, tasks: Sequence[TaskState]) -> float:
    """Guess a trial's gain: the time per past trial or the gap to a similar task, if larger."""
    fastest = max(each.flops / each.time_us for each in tasks if each.kind == task.kind)
    behind_us = task.time_us - _SIMILAR * task.flops / fastest if fastest else 0.0
    return max(task.time_us / task.trials, behind_us)
