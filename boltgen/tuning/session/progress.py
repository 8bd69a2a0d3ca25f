"""Events that a session reports while it runs."""

from __future__ import annotations

from typing import Protocol

from boltgen.ir.outcome import Outcome
from boltgen.tuning.rest.tasks import AnyTrial
from boltgen.tuning.session.budget import Budget


class Observer(Protocol):
    """Hear the events of a session."""

    def begin(self, budget: Budget, tasks: int) -> None:
        """Hear that the device is locked; time counts from here."""

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """A trial has its outcome. `best_us` is the sum of the best times of the `timed` tasks
        that have one, each as often as the model runs it.
        """

    def warn(self, message: str) -> None:
        """Hear a warning that a person should know now."""

    def end(self) -> None:
        """Hear that the session is over, done or not."""


class Quiet:
    """Report nothing: the library's default."""

    def begin(self, budget: Budget, tasks: int) -> None:
        """Ignore."""

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Ignore."""

    def warn(self, message: str) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""
