"""Report the progress of tasks: a bar on a terminal, lines elsewhere, Python's logging, or nothing.

Tasks can be nested; only the innermost is shown. Short tasks are not shown.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.progress import Task as Shown
from rich.text import Text

_log = logging.getLogger(__name__)

# Returns the remaining seconds of a task, or None if unknown.
Left: TypeAlias = Callable[[], float | None]

# Seconds before a task is first shown, and between two lines.
_FIRST, EVERY = 1.0, 5.0
# A task with fewer steps reports each step.
_FEW_STEPS = 20
# A caller of the library gets one warning about a task that takes longer, at any log level.
_LONG = 10.0


class Reporter(Protocol):
    """Receives the progress of a task of `total` steps; 0 means that the number is unknown."""

    def start(self, title: str, total: int = 0, left: Left | None = None) -> None:
        """Begin a task, perhaps within another one."""
        return

    def step(self, what: str) -> None:
        """Note that a step of the task is done."""
        return

    def end(self) -> None:
        """End the task, completed or not."""
        return


@contextmanager
def telling(reporter: Reporter, title: str) -> Iterator[None]:
    """Report the `with` block as a task without steps."""
    reporter.start(title)
    try:
        yield
    finally:
        reporter.end()


class Silent(Reporter):
    """Report nothing."""


@dataclass(slots=True)
class _Task:
    title: str
    total: int
    left: Left | None
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    told: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds since the task began."""
        return time.monotonic() - self.started

    def state(self) -> str:
        """Describe the state: `3 of 12, 15 s, about 40 s left`."""
        parts = [f"{self.done} of {self.total}"] if self.total else []
        return ", ".join([*parts, duration(self.seconds), *self._rest()])

    def _rest(self) -> list[str]:
        if self.left is not None:
            seconds = self.left()
        elif self.done and self.total:
            seconds = self.seconds / self.done * (self.total - self.done)
        else:
            seconds = None
        return [] if seconds is None else [f"about {duration(seconds)} left"]


def duration(seconds: float) -> str:
    """Write seconds as `15 s` or `2 min 5 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Ticker:
    """Call `tick` about once a second, in a thread of its own, until it is stopped."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="boltgen-progress")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_FIRST):
            self._tick()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


class Lines:
    """Print lines for logs: one per step or tenth of the task, and one every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: list[_Task] = []
        self._lock = threading.RLock()
        self._ticker: Ticker | None = None

    def start(self, title: str, total: int = 0, left: Left | None = None) -> None:
        """Begin a task; its lines come later."""
        with self._lock:
            self._tasks.append(_Task(title, total, left))
        if self._ticker is None:
            self._ticker = Ticker(self._tick)

    def step(self, what: str) -> None:
        """Print `[3/12] title: what` with the remaining time, if a line is due."""
        with self._lock:
            task = self._tasks[-1]
            before, task.done = task.done, task.done + 1
            is_tenth = 10 * before // max(task.total, 1) < 10 * task.done // max(task.total, 1)
            if task.total <= _FEW_STEPS or is_tenth or self._is_due(task):
                rest = "".join(f", {text}" for text in task._rest() if task.done < task.total)
                self._say(task, f"[{task.done}/{task.total}] {task.title}: {what}{rest}")

    def end(self) -> None:
        """End the innermost task."""
        with self._lock:
            self._tasks.pop()
        if not self._tasks and self._ticker is not None:
            self._ticker.stop()
            self._ticker = None

    def _is_due(self, task: _Task) -> bool:
        if task.told is None:
            return task.seconds >= _FIRST
        return time.monotonic() - task.told >= EVERY

    def _tick(self) -> None:
        with self._lock:
            if self._tasks and self._is_due(task := self._tasks[-1]):
                self._say(task, f"{task.title}: {task.state()}")

    def _say(self, task: _Task, line: str) -> None:
        task.told = time.monotonic()
        self._print(line)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class Logged(Lines):
    """Write lines to Python's logging, at level INFO: the library's default.

    A long task of many steps also makes one warning, which is printed even if nobody has configured
    logging.
    """

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self._has_warned = False

    def _tick(self) -> None:
        super()._tick()
        with self._lock:
            task = self._tasks[-1] if self._tasks else None
            if task and task.total and not self._has_warned and task.seconds >= _LONG:
                self._has_warned = True
                _log.warning(
                    "%s: %s; logging.getLogger('boltgen').setLevel('INFO') tells of each step",
                    task.title,
                    task.state(),
                )

    def _print(self, line: str) -> None:
        _log.info("%s", line)


class _State(ProgressColumn):
    """A column with the current step of a task and the remaining time."""

    max_refresh = 0.5

    def render(self, task: Shown) -> Text:
        """Return the column's text."""
        return Text(task.fields["told"].state() if task.fields.get("told") else "")


class Bar:
    """A bar with the remaining time, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            _State(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, told=None)
        self._tasks: list[_Task] = []
        self._lock = threading.RLock()

    def start(self, title: str, total: int = 0, left: Left | None = None) -> None:
        """Show the bar of a new task."""
        with self._lock:
            self._tasks.append(_Task(title, total, left))
            self._show()
        self._progress.start()

    def step(self, what: str) -> None:
        """Advance the bar."""
        with self._lock:
            self._tasks[-1].done += 1
            self._show()

    def end(self) -> None:
        """Show the enclosing task, or remove the bar."""
        with self._lock:
            self._tasks.pop()
            if self._tasks:
                self._show()
                return
        self._progress.stop()

    def _show(self) -> None:
        task = self._tasks[-1]
        self._progress.update(
            self._task,
            description=task.title,
            total=task.total or None,
            completed=task.done,
            told=task,
        )


def reporter_for(console: Console | None = None) -> Reporter:
    """Return a bar if standard error is a terminal, else lines."""
    console = console or Console(file=sys.stderr)
    return Bar(console) if console.is_terminal else Lines(console)
