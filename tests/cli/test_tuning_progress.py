"""What a session tells: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from boltgen.cli.terminal.tuning_progress import Bar, Lines, observer_for
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.progress import Quiet
from tests.tuning.samples import record, timing


def console(*, is_terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=is_terminal, width=200, no_color=True), text


def test_a_terminal_has_a_bar_with_the_best_figure() -> None:
    out, text = console(is_terminal=True)
    observer = observer_for(out)
    assert isinstance(observer, Bar)
    observer.begin(Budget(trials=50), 4)
    observer.measured(record().trial, timing(20.0), 0.0, 0)
    observer.measured(record().trial, timing(20.0), 123.45, 3)
    observer._progress.refresh()
    observer.end()
    shown = text.getvalue()
    assert "2 trials of 50trials" in shown
    assert "ETA" in shown
    assert "best 123.5 us for 3 of 4 tasks" in shown
    assert observer._progress.tasks[0].completed == 2
    assert observer._progress.tasks[0].total == 50


def test_a_budget_of_seconds_fills_the_bar_by_the_clock() -> None:
    out, _ = console(is_terminal=True)
    bar = Bar(out)
    bar.begin(Budget(seconds=1000), 1)
    bar._started -= 400
    bar.measured(replace(record().trial), timing(20.0), 20.0, 1)
    bar.end()
    assert bar._progress.tasks[0].total == 1000
    assert 400 <= bar._progress.tasks[0].completed < 500


def test_a_log_has_the_beginning_the_state_and_warnings() -> None:
    out, text = console(is_terminal=False)
    observer = observer_for(out)
    assert isinstance(observer, Lines)
    observer.begin(Budget(trials=50), 4)
    observer.measured(record().trial, timing(20.0), 123.45, 3)
    observer._started -= 10
    observer._told -= 10
    observer._tick()
    observer._tick()
    observer.warn("the GPU's clock drifts [bold]")
    observer.end()
    begun, told, warned, done = text.getvalue().splitlines()
    assert begun == "tuning 4 tasks, budget 50trials"
    assert told.startswith("tuning: 1 trial of 50trials, 10 s, about 8 min 1")
    assert told.endswith("s left, best 123.5 us for 3 of 4 tasks")
    assert warned == "warning: the GPU's clock drifts [bold]"
    assert done.startswith("tuning: 1 trial of 50trials, 10 s")


def test_the_library_tells_nothing() -> None:
    quiet = Quiet()
    quiet.begin(Budget(trials=1), 1)
    quiet.measured(record().trial, timing(1.0), 1.0, 1)
    quiet.warn("x")
    quiet.end()
