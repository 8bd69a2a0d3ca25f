"""How tasks are told of: lines, a bar, logging; and how long units are expected to take."""

from __future__ import annotations

import io
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from boltgen.build.nvcc.estimate import Estimate, expected_seconds
from boltgen.build.progress import Bar, Lines, Logged, Reporter, Ticker, reporter_for, telling
from tests.build.fakes import fake_toolchain, fake_unit


def console(*, is_terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=is_terminal, width=200, no_color=True), text


def later(reporter: Lines | Bar, seconds: float) -> None:
    """Let the innermost task have begun, and have been told of, earlier."""
    task = reporter._tasks[-1]
    task.started -= seconds
    if task.told is not None:
        task.told -= seconds


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks come from the test alone."""
    monkeypatch.setattr(Ticker, "_run", lambda _: None)


def test_a_task_of_few_steps_tells_of_each_with_the_time_left() -> None:
    out, text = console()
    lines = reporter_for(out)
    assert isinstance(lines, Lines)
    lines.start("kernels", 3)
    later(lines, 10)
    lines.step("a [bold]")
    lines.step("b")
    lines.step("c")
    lines.end()
    assert text.getvalue().splitlines() == [
        "[1/3] kernels: a [bold], about 20 s left",
        "[2/3] kernels: b, about 5 s left",
        "[3/3] kernels: c",
    ]


def test_a_task_of_many_steps_tells_of_each_tenth() -> None:
    out, text = console()
    lines = Lines(out)
    lines.start("objects", 146)
    for number in range(146):
        lines.step(f"{number}.o")
    lines.end()
    said = text.getvalue().splitlines()
    assert len(said) == 10
    assert said[0].startswith("[15/146] objects: 14.o")
    assert said[-1] == "[146/146] objects: 145.o"


def test_a_silent_task_is_told_of_after_a_second_and_every_five() -> None:
    out, text = console()
    lines = Lines(out)
    lines.start("compile", 4, lambda: 65.4)
    with telling(lines, "load TVM"):
        lines._tick()
        assert text.getvalue() == ""
        later(lines, 1.2)
        lines._tick()
        lines._tick()
        later(lines, 6)
        lines._tick()
    later(lines, 8)
    lines._tick()
    lines.end()
    assert text.getvalue().splitlines() == [
        "load TVM: 1 s",
        "load TVM: 7 s",
        "compile: 0 of 4, 8 s, about 1 min 5 s left",
    ]


def test_a_quick_task_says_nothing() -> None:
    out, text = console()
    with telling(Lines(out), "link"):
        pass
    assert text.getvalue() == ""


def test_a_bar_shows_the_innermost_task() -> None:
    out, text = console(is_terminal=True)
    bar = reporter_for(out)
    assert isinstance(bar, Bar)
    bar.start("compile kernels")
    bar.start("kernels", 12, lambda: 40.0)
    later(bar, 15)
    bar.step("a")
    bar._progress.refresh()
    assert "kernels" in text.getvalue()
    assert "1 of 12, 15 s, about 40 s left" in text.getvalue()
    bar.end()
    assert bar._progress.tasks[0].description == "compile kernels"
    assert bar._progress.live.is_started
    bar.end()
    assert not bar._progress.live.is_started


def test_the_library_logs(caplog: pytest.LogCaptureFixture) -> None:
    logged = Logged()
    with caplog.at_level(logging.INFO, "boltgen"):
        logged.start("kernels", 2)
        logged.step("a")
        later(logged, 11)
        logged._tick()
        later(logged, 11)
        logged._tick()
        logged.end()
    told = [(record.levelname, record.getMessage().split(";")[0]) for record in caplog.records]
    assert told == [
        ("INFO", "[1/2] kernels: a, about 0 s left"),
        ("INFO", "kernels: 1 of 2, 11 s, about 11 s left"),
        ("WARNING", "kernels: 1 of 2, 11 s, about 11 s left"),
        ("INFO", "kernels: 1 of 2, 22 s, about 22 s left"),
    ]


@pytest.mark.parametrize("kind", [Lines, Bar])
def test_a_task_ends_where_something_is_raised(kind: type[Lines] | type[Bar]) -> None:
    reporter: Reporter = kind(console()[0])

    def fail() -> None:
        with telling(reporter, "link"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert reporter._tasks == []  # type: ignore[attr-defined]


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("slowness", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_the_time_left_is_right_within_a_half(
    monkeypatch: pytest.MonkeyPatch, jobs: int, slowness: float
) -> None:
    """A mix of quick and slow units, of a machine that nobody has measured, in `jobs` at once."""
    now = clock(monkeypatch)
    expected = {f"a{i}": 2.0 for i in range(4)}
    expected |= {f"k{i}": 40.0 if i % 3 == 0 else 8.0 for i in range(9)}
    off = {"a": 0.9, "k": 1.1}  # what the table does not know
    actual = {key: slowness * off[key[0]] * seconds for key, seconds in expected.items()}
    estimate = Estimate(expected, jobs)
    waiting, running = list(expected), dict[str, float]()
    told: list[tuple[float, float | None]] = []
    assert estimate.left() is None
    while waiting or running:
        while waiting and len(running) < jobs:
            key = waiting.pop(0)
            estimate.begin(key)
            running[key] = now[0] + actual[key]
        told.append((now[0], estimate.left()))
        first = min(running, key=lambda key: running[key])
        middle = (now[0] + running[first]) / 2
        now[0] = middle
        told.append((now[0], estimate.left()))
        now[0] = running.pop(first)
        estimate.done(first)
    end = now[0]
    # After a sixth of the time, until the last seconds.
    checked = [(at, left or 0.0) for at, left in told if end / 6 <= at <= 0.9 * end]
    assert len(checked) > 4
    for at, left in checked:
        assert (end - at) / 1.5 <= left <= (end - at) * 1.5, (at, left, end)


def test_a_unit_is_expected_to_take_longer_for_hopper_and_for_more_kernels(tmp_path: Path) -> None:
    unit = fake_unit(fake_toolchain(tmp_path))

    def seconds(text: str, kind: str = "kernel") -> float:
        return expected_seconds(replace(unit, text=text, kind=kind))

    one = '#include "boltgen/gemm.h"\nnamespace a_kernel {\n'
    hopper = one.replace("gemm.h", "gemm_sm90.h")
    assert seconds(hopper) > 3 * seconds(one)
    assert seconds(one + "namespace b_kernel {\n") > seconds(one)
    assert seconds("line\n" * 1000, "adapter") > seconds("", "adapter")
