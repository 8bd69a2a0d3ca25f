"""The course of a task's search: its best time by trial, and the reason for each improvement."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from boltgen.families.family import Config
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Outcome, Timing
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A configuration that was faster than all before it in its session.

    `trial` counts the task's trials from 1. `why` says for people why it was tried.
    """

    trial: int
    median_us: float
    config: Config
    why: str


class Courses:
    """The improvements of each workload in a session."""

    def __init__(self) -> None:
        self._trials: Counter[Workload] = Counter()
        self._found: dict[Workload, list[Improvement]] = defaultdict(list)

    def hear(self, trial: Trial, outcome: Outcome, why: str) -> None:
        """Count a trial, and store it if it was faster than all trials before it."""
        self._trials[trial.workload] += 1
        found = self._found[trial.workload]
        if isinstance(outcome, Timing) and (not found or outcome.median_us < found[-1].median_us):
            found.append(
                Improvement(
                    trial=self._trials[trial.workload],
                    median_us=outcome.median_us,
                    config=trial.config,
                    why=why,
                )
            )

    def of(self, workload: Workload) -> tuple[Improvement, ...]:
        """Return the improvements of a workload, each faster than the one before it."""
        return tuple(self._found.get(workload, ()))
