"""What a session tells: a bar on a terminal, warnings elsewhere, or nothing."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from boltgen.tuning.budget import Budget
from boltgen.tuning.progress import Quiet
from boltgen.tuning.progress_bar import Bar, observer_for
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


def test_a_log_has_warnings_alone() -> None:
    out, text = console(is_terminal=False)
    observer = observer_for(out)
    observer.begin(Budget(trials=50), 4)
    observer.measured(record().trial, timing(20.0), 123.45, 3)
    observer.warn("the GPU's clock drifts [bold]")
    observer.end()
    assert text.getvalue() == "warning: the GPU's clock drifts [bold]\n"


def test_the_library_tells_nothing() -> None:
    quiet = Quiet()
    quiet.begin(Budget(trials=1), 1)
    quiet.measured(record().trial, timing(1.0), 1.0, 1)
    quiet.warn("x")
    quiet.end()
