"""The progress of a tuning session: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from boltgen.build.progress import EVERY, Ticker, duration
from boltgen.intake.numerals import counted
from boltgen.ir.outcome import Outcome
from boltgen.tuning.rest.tasks import AnyTrial
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.progress import Observer, Quiet


class Warnings(Quiet):
    """Print warnings only, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def warn(self, message: str) -> None:
        """Print the warning."""
        self._console.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


class Lines(Warnings):
    """Print lines for logs: the beginning, and the progress every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._budget = Budget(trials=1)
        self._tasks = self._trials = 0
        self._best = ""
        self._started = self._told = 0.0
        self._ticker: Ticker | None = None

    def begin(self, budget: Budget, tasks: int) -> None:
        """Print the budget and the number of tasks."""
        self._budget, self._tasks = budget, tasks
        self._started = self._told = time.monotonic()
        self._say(f"tuning {counted(tasks, 'task')}, budget {budget}")
        self._ticker = Ticker(self._tick)

    def measured(self, trial: AnyTrial, outcome: Outcome, best_us: float, timed: int) -> None:
        """Store the state for the next line."""
        self._trials += 1
        self._best = (
            f", best {best_us:.1f} us for {timed} of {counted(self._tasks, 'task')}"
            if timed
            else ""
        )

    def end(self) -> None:
        """Print a summary."""
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
            self._tell()

    def _tick(self) -> None:
        if time.monotonic() - self._told >= EVERY:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        spent = self._told - self._started
        share = spent / self._budget.seconds if self._budget.seconds else None
        if share is None and self._budget.trials and self._trials:
            share = self._trials / self._budget.trials
        left = f", about {duration(max(0.0, spent / share - spent))} left" if share else ""
        trials = counted(self._trials, "trial")
        self._say(f"tuning: {trials} of {self._budget}, {duration(spent)}{left}{self._best}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class Bar(Warnings):
    """A bar of the budget, with the remaining time and the best figure so far."""

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
        """Advance the bar."""
        self._trials += 1
        spent = time.monotonic() - self._started if self._budget.seconds else self._trials
        best = (
            f"best {best_us:.1f} us for {timed} of {counted(self._tasks, 'task')}" if timed else ""
        )
        self._progress.update(
            self._task,
            completed=spent,
            done=f"{counted(self._trials, 'trial')} of {self._budget}",
            best=best,
        )

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def observer_for(console: Console) -> Observer:
    """Return a bar if the console is a terminal, else lines."""
    return Bar(console) if console.is_terminal else Lines(console)
