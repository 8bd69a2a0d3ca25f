"""Results to one report: JSON, a Markdown page, plots, and the records of what was timed.

Arrow: results of runs -> results/<gpu>/<date>-<commit>/ and recorded/<gpu>/ in a folder of one's
choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.bench.page import page
from boltgen.bench.plots import draw
from boltgen.bench.results import DONE, FAILED, Form, ResultsError, device_folder, merged, unpacked
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.database.records import from_line

_MOST_RECORD_BYTES = 5 << 20
_FORM = "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The folder that was written, the file of records, and how many items were measured."""

    folder: Path
    records: Path | None
    measured: int
    failed: int


def make_report(folders: Sequence[Path], output: Path) -> Report:
    """Merge the results in `folders` into `output`.

    Raises:
        ResultsError: there are none, or they are of several devices; one cannot be read.
    """
    about, items = merged(folders)
    name = device_folder(about["gpu"])
    folder = output / "results" / name / _run_name(about)
    _check_place(folder / _FORM, about, items)
    folder.mkdir(parents=True, exist_ok=True)
    records = _take_records(items, output / "recorded" / name, about)
    for item in items.values():  # bits, which `apply --virtual` has compared
        item.pop("output", None)
    form = {"about": about, "items": dict(sorted(items.items()))}
    (folder / _FORM).write_text(json.dumps(form, indent=1) + "\n")
    plots = draw(folder, about, items)
    (folder / "report.md").write_text(page(about, items, [path.name for path in plots]))
    statuses = [item["status"] for item in items.values()]
    return Report(
        folder=folder,
        records=records,
        measured=statuses.count(DONE),
        failed=statuses.count(FAILED),
    )


def _run_name(about: Form) -> str:
    return f"{about['date']}-{about['commit']}"


def _check_place(path: Path, about: Form, items: Mapping[str, Form]) -> None:
    """Check that a report that is there is of a part of these results, which take its place.

    Raises:
        ResultsError: it is of other ones.
    """
    if not path.is_file():
        return
    there = json.loads(path.read_text())
    lost = sorted(there["items"].keys() - items.keys())
    if lost:
        raise ResultsError(
            f"{path} has results of another run ({len(lost)} items that these have not): move it "
            "away, or name its folder of results too; nothing was overwritten"
        )


def _take_records(items: dict[str, Form], folder: Path, about: Form) -> Path | None:
    """Move the records out of the items, into a file of their own."""
    texts = [unpacked(item.pop("records")) for item in items.values() if "records" in item]
    lines = [line for text in texts for line in text.decode().splitlines()]
    if not lines:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"suite-{_run_name(about)}.jsonl.gz"
    write_records(path, [from_line(line) for line in lines])
    size_bytes = path.stat().st_size
    if size_bytes > _MOST_RECORD_BYTES:
        raise ResultsError(
            f"{path} has {size_bytes} bytes, more than {_MOST_RECORD_BYTES}: split it"
        )
    return path
