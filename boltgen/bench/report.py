"""Slices to one report: JSON, a Markdown page, plots, and the records of section tune.

Arrow: slices -> results/<gpu>/<date>/ and recorded/<gpu>/ in a folder of the user's choice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.bench.page import page
from boltgen.bench.plots import draw
from boltgen.bench.slices import DONE, FAILED, Form, ResultsError, device_folder, merged, unpacked
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.database.records import from_line

_MOST_RECORD_BYTES = 5 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The folder that was written, the file of records, and how many items were measured."""

    folder: Path
    records: Path | None
    measured: int
    failed: int


def make_report(folders: Sequence[Path], output: Path) -> Report:
    """Merge the slices in `folders` into `output`.

    Raises:
        ResultsError: there are no slices, or they are of several devices; one cannot be read.
    """
    about, items = merged(folders)
    name = device_folder(about["gpu"])
    folder = output / "results" / name / about["date"]
    folder.mkdir(parents=True, exist_ok=True)
    records = _take_records(items, output / "recorded" / name, about)
    form = {"about": about, "items": dict(sorted(items.items()))}
    (folder / "results.json").write_text(json.dumps(form, indent=1) + "\n")
    plots = draw(folder, about, items)
    (folder / "report.md").write_text(page(about, items, [path.name for path in plots]))
    statuses = [item["status"] for item in items.values()]
    return Report(
        folder=folder,
        records=records,
        measured=statuses.count(DONE),
        failed=statuses.count(FAILED),
    )


def _take_records(items: dict[str, Form], folder: Path, about: Form) -> Path | None:
    """Move the records out of the items, into a file of their own."""
    texts = [unpacked(item.pop("records")) for item in items.values() if "records" in item]
    lines = [line for text in texts for line in text.decode().splitlines()]
    if not lines:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"suite-{about['date']}.jsonl.gz"
    write_records(path, [from_line(line) for line in lines])
    size_bytes = path.stat().st_size
    if size_bytes > _MOST_RECORD_BYTES:
        raise ResultsError(
            f"{path} has {size_bytes} bytes, more than {_MOST_RECORD_BYTES}: split it"
        )
    return path
