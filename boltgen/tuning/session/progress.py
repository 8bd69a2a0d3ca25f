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
        return

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Note the outcome of a trial.

        `best_us` is the sum of the best times of the `timed` tasks that have one, each weighted by
        its number of runs.
        """
        return

    def warn(self, message: str) -> None:
        """Show a warning to the user now."""
        return

    def end(self) -> None:
        """Note that the session has ended, completed or not."""
        return


class Quiet(Observer):
    """Report nothing: the library's default."""
