"""Events that a session reports while it runs."""

from __future__ import annotations

from typing import Protocol

from boltgen.ir.outcome import Outcome
from boltgen.tuning.rest.tasks import AnyTrial
from boltgen.tuning.session.budget import Budget


class Observer(Protocol):
    """Receives the events of a session."""

    def begin(self, budget: Budget, tasks: int) -> None:
        """Note that the device is locked and the session's time begins."""

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Note the outcome of a trial.

        `best_us` is the sum of the best times of the `timed` tasks that have one, each weighted by
        its number of runs.
        """

    def warn(self, message: str) -> None:
        """Show a warning to the user now."""

    def end(self) -> None:
        """Note that the session has ended, completed or not."""


class Quiet:
    """Report nothing: the library's default."""

    def begin(self, budget: Budget, tasks: int) -> None:
        """Do nothing."""

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Do nothing."""

    def warn(self, message: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
