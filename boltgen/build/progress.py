"""How a build tells what it is doing: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Reporter(Protocol):
    """Hears of a task of `total` steps."""

    def start(self, title: str, total: int) -> None:
        """A task begins."""

    def step(self, what: str) -> None:
        """One step of it is done."""

    def end(self) -> None:
        """The task is over, done or not."""


class Silent:
    """Tells nothing: the library's default."""

    def start(self, title: str, total: int) -> None:
        """Ignore."""

    def step(self, what: str) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""


class Lines:
    """One line a step, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._title = ""
        self._total = 0
        self._done = 0

    def start(self, title: str, total: int) -> None:
        """Remember the task."""
        self._title, self._total, self._done = title, total, 0

    def step(self, what: str) -> None:
        """Print `[done/total] title: what`."""
        self._done += 1
        line = f"[{self._done}/{self._total}] {self._title}: {what}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Nothing is left to do."""


class Bar:
    """A bar with the time left, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=0)

    def start(self, title: str, total: int) -> None:
        """Show the bar."""
        self._progress.reset(self._task, total=total, description=title)
        self._progress.start()

    def step(self, what: str) -> None:
        """Advance it."""
        self._progress.advance(self._task)

    def end(self) -> None:
        """Take it away."""
        self._progress.stop()


def reporter_for(console: Console | None = None) -> Reporter:
    """A bar where standard error is a terminal, else lines."""
    console = console or Console(file=sys.stderr)
    return Bar(console) if console.is_terminal else Lines(console)
