"""The page about com.microsoft's operators: as recorded, and every form right."""

from __future__ import annotations

from benchmarks.contrib_cases import cases
from benchmarks.contrib_operators import NAME, TABLE, table
from benchmarks.record import earlier


def test_the_page_is_that_of_the_recorded_cases() -> None:
    figures = earlier(NAME)["host"]
    assert TABLE.read_text() == table(figures), (
        "run `python -m benchmarks.contrib_operators --table`"
    )
    assert figures.keys() == {case.label for case in cases()}
    assert [label for label, found in figures.items() if not found["right"]] == []
