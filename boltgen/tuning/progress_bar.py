"""What a session tells on a terminal: a bar, or warnings alone."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from boltgen.ir.outcome import Outcome
from boltgen.tuning.budget import Budget
from boltgen.tuning.progress import Observer, Quiet
from boltgen.tuning.rest import AnyTrial


class Warnings(Quiet):
    """Prints warnings alone: for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def warn(self, message: str) -> None:
        """Print it."""
        self._console.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


class Bar(Warnings):
    """A bar of the budget, with the time left and the best figure so far."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("tuning"),
            BarColumn(),
            TextColumn("{task.fields[done]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, done="", best="")
        self._budget = Budget(trials=1)
        self._tasks = self._trials = 0
        self._started = 0.0

    def begin(self, budget: Budget, tasks: int) -> None:
        """Show the bar."""
        self._budget, self._tasks, self._started = budget, tasks, time.monotonic()
        total = budget.seconds or budget.trials
        self._progress.reset(self._task, total=total, done=f"of {budget}", best="")
        self._progress.start()

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Advance it."""
        self._trials += 1
        spent = time.monotonic() - self._started if self._budget.seconds else self._trials
        best = f"best {best_us:.1f} us for {timed} of {self._tasks} tasks" if timed else ""
        self._progress.update(
            self._task, completed=spent, done=f"{self._trials} trials of {self._budget}", best=best
        )

    def end(self) -> None:
        """Take it away."""
        self._progress.stop()


def observer_for(console: Console) -> Observer:
    """A bar where the console is a terminal, else warnings alone."""
    return Bar(console) if console.is_terminal else Warnings(console)
