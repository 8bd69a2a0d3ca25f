"""The part that the commands that try models share: options, the loop, and the status."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.record import dumped
from benchmarks.trials.process import Row
from benchmarks.trials.table import line


def options(description: str | None, limit_s: float) -> argparse.ArgumentParser:
    """A parser of names of models, and of how, how long and to which end each is tried."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="*", help="their names; all, and recorded, by default")
    parser.add_argument(
        "--compile", action="store_true", help="compile for sm_80 and run on the virtual GPU"
    )
    parser.add_argument("--limit", type=float, default=limit_s, help="seconds for each model")
    parser.add_argument("--rows", type=Path, help="write the rows there, and record nothing")
    return parser


def try_all(
    trials: Iterable[Callable[[], Row]], printed: Sequence[str], kept: Path | None
) -> list[Row]:
    """The rows of `trials`. After each one, its columns `printed` are printed, and all rows are
    written to the file `kept`.
    """
    rows: list[Row] = []
    for trial in trials:
        rows.append(trial())
        print(line(rows[-1], printed), flush=True)
        if kept:
            kept.write_text(dumped(rows))
    return rows


def status(rows: Iterable[Row]) -> int:
    """1 where a model does not agree."""
    return 0 if all(row["outcome"] == "agrees" for row in rows) else 1
