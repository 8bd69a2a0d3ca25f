"""The rows of trials as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.trials.process import Row

_SHARES = {"of_flops", "of_own_flops"}
_MOST_CHARACTERS = 160


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """The rows as Markdown; `columns` has the titles by what they are called in a row."""
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[cell(row, column).replace("|", "/") for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def line(row: Row, columns: Iterable[str]) -> str:
    """Some columns of a row, to be printed."""
    return "  ".join(cell(row, column) for column in columns)


def cell(row: Row, column: str) -> str:
    """A value of a row as text; empty where the trial did not come so far."""
    value = row.get(column)
    if value is None:
        return ""
    if column in _SHARES:
        return f"{value:.1%}"
    if column == "outcome":
        return (f"{value}: {row['refusal']}" if "refusal" in row else str(value))[:_MOST_CHARACTERS]
    return f"{value:.2g}" if isinstance(value, float) else str(value)
