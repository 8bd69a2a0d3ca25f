"""Slices to one report: JSON, a Markdown page, plots, and the records of section tune.

Arrow: slices -> benchmarks/results/<gpu>/<date>/ and benchmarks/recorded/<gpu>/.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.page import page
from benchmarks.gpu.plots import draw
from benchmarks.gpu.predicted import predicted_items
from benchmarks.gpu.results import ResultsError, device_folder, read_form, unpacked
from boltgen.arch import ARCHES
from boltgen.errors import BoltgenError
from boltgen.tuning.exchange import write_records
from boltgen.tuning.records import from_line

MOST_RECORD_BYTES = 5 << 20
# What slices of one report have in common.
_SAME = ("gpu", "driver", "commit", "toolchain", "vendor")


class ReportError(BoltgenError):
    """Slices that cannot be reported on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written."""

    folder: Path
    records: Path | None
    measured: int
    failed: int


def make_report(folders: Sequence[Path], benchmarks: Path, arch: str = "sm_90") -> Report:
    """Merge the slices in `folders`; without any, predict for `arch`.

    Raises:
        ReportError: there are no slices, or they are of several devices; one cannot be read.
    """
    about, items = merged(folders) if folders else (_predicted_about(arch), {})
    everything = {**predicted_items(ARCHES[about["arch"]]), **items}
    name = device_folder(about["gpu"])
    folder = benchmarks / "results" / name / about["date"]
    folder.mkdir(parents=True, exist_ok=True)
    records = _take_records(everything, benchmarks / "recorded" / name, about)
    form = {"about": about, "items": dict(sorted(everything.items()))}
    (folder / "results.json").write_text(json.dumps(form, indent=1) + "\n")
    plots = draw(folder, about, everything)
    (folder / "report.md").write_text(page(about, everything, [path.name for path in plots]))
    return Report(
        folder=folder,
        records=records,
        measured=sum(item["status"] == "done" for item in items.values()),
        failed=sum(item["status"] == "failed" for item in items.values()),
    )


def merged(folders: Sequence[Path]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the slices were measured on, and their items.

    Raises:
        ReportError: there are none, or they are of several devices, commits or toolchains.
    """
    paths = [path for folder in folders for path in sorted(folder.glob("slice-*-of-*.json"))]
    if not paths:
        looked = ", ".join(map(str, folders))
        raise ReportError(f"no slices in {looked}: give folders that run_gpu_suite.py wrote")
    abouts: dict[tuple[str, ...], dict[str, Any]] = {}
    where: dict[tuple[str, ...], Path] = {}
    items: dict[str, dict[str, Any]] = {}
    for path in paths:
        try:
            form = read_form(path)
        except ResultsError as error:
            raise ReportError(str(error)) from error
        key = tuple(str(form["about"].get(name)) for name in _SAME)
        abouts[key] = form["about"]
        where.setdefault(key, path)
        items.update(form["items"])
    if len(abouts) > 1:
        differing = [
            f"{name} ({', '.join(f'{key[index]} in {where[key].name}' for key in abouts)})"
            for index, name in enumerate(_SAME)
            if len({key[index] for key in abouts}) > 1
        ]
        raise ReportError(
            f"these slices do not go together; they differ in {'; '.join(differing)}: report on "
            "each by itself"
        )
    (about,) = abouts.values()
    return about, items


def _predicted_about(arch: str) -> dict[str, Any]:
    if arch not in ARCHES:
        raise ReportError(f"unknown arch {arch!r}; known: {', '.join(ARCHES)}")
    row = ARCHES[arch]
    return {"gpu": row.device, "arch": arch, "virtual": False, "date": "predicted", "method": None}


def _take_records(
    items: dict[str, dict[str, Any]], folder: Path, about: dict[str, Any]
) -> Path | None:
    """Move the records out of the items, into a file of their own."""
    try:
        texts = [unpacked(item.pop("records")) for item in items.values() if "records" in item]
    except ResultsError as error:
        raise ReportError(str(error)) from error
    lines = [line for text in texts for line in text.decode().splitlines()]
    if not lines:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"suite-{about['date']}.jsonl.gz"
    write_records(path, [from_line(line) for line in lines])
    if path.stat().st_size > MOST_RECORD_BYTES:
        raise ReportError(
            f"{path} has {path.stat().st_size} bytes, more than {MOST_RECORD_BYTES}: split it"
        )
    return path
