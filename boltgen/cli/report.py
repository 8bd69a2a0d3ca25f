"""The command `boltgen report`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from boltgen.artifact.metadata import Metadata
from boltgen.cli.terminal.console import errors_for_people, say
from boltgen.cli.terminal.flags import Debug, Folder
from boltgen.errors import BoltgenError
from boltgen.intake.files import written_whole
from boltgen.ir.outcome import DeviceKind, Timing
from boltgen.passes.pipeline import PIPELINE
from boltgen.passes.trace import read_trace
from boltgen.problems.workload import Workload
from boltgen.report.compare import compared
from boltgen.report.curves import Attempt, curves, workloads_of
from boltgen.report.facts import Facts, TimeKind, facts_of
from boltgen.report.page import is_page, page
from boltgen.report.passes import FunctionChanges, changes_of
from boltgen.running.artifact import Artifact
from boltgen.settings import settings_from
from boltgen.stored import database_path
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.records import Record

# The name of a region in the text of a graph.
_REGION = re.compile(r" = region\(.*?\bsymbol='([^']*)'")


def report_command(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    *,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="DIR", help="Another compiled model to compare with."),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database",
            metavar="FILE",
            help="Records of trials, for the curves of tuning; default: this machine's.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="DIR",
            help="A folder of `compile --trace`: show what each pass changed in the graph.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a page of HTML about a compiled model.

    The page needs no other file and no network. It shows what runs where and why, the time of each
    region and its source, a roofline, the curves of tuning, the kernels' sources, the padded and
    fused anchors, and the result of the check.

    \b
    Examples:
      boltgen report resnet50 -o resnet50.html
      boltgen report resnet50-tuned --against resnet50
      boltgen report resnet50 --trace resnet50-trace
    """
    with errors_for_people(debug):
        ours = _facts(folder)
        text = page(
            ours,
            compared(ours, _facts(against)) if against is not None else None,
            curves(_history(ours.metadata, database)),
            () if trace is None else _changes(trace, ours.metadata),
        )
        try:
            with written_whole(output, is_page) as staged:
                staged.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BoltgenError(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"wrote {output}")


def _changes(folder: Path, metadata: Metadata) -> tuple[FunctionChanges, ...]:
    """Return the changes that each pass made, from a trace.

    Raises:
        BoltgenError: the trace cannot be read, or its regions are not the model's.
    """
    trace = read_trace(folder)
    traced = {each for steps in trace.values() for each in _REGION.findall(steps[-1].text)}
    own = {each.region for each in metadata.placements if each.region}
    if traced != own:
        raise BoltgenError(
            f"the trace in {folder} has other regions than the model: give the folder of the "
            "`compile --trace` that wrote the model"
        )
    texts = {
        function: [(step.name, step.text) for step in steps] for function, steps in trace.items()
    }
    return changes_of(texts, {each.name: each.effect for each in PIPELINE})


def _facts(folder: Path) -> Facts:
    artifact = Artifact.load(folder)
    return facts_of(artifact.folder, artifact.metadata)


def _history(metadata: Metadata, where: Path | None) -> dict[Workload, list[Attempt]]:
    """Return the recorded trials of the model's workloads; empty without a database."""
    path = where or database_path(settings_from())
    if where is None and not path.exists():
        return {}
    with Database(path, read_only=True, examine=False) as records:
        return {
            workload: [_attempt(record) for record in records.history(workload, metadata.arch)]
            for workload in workloads_of(metadata)
        }


def _attempt(record: Record) -> Attempt:
    outcome = record.outcome
    kind = TimeKind.MODELLED if record.device.kind is DeviceKind.VGPU else TimeKind.MEASURED
    time_us = outcome.median_us if isinstance(outcome, Timing) else None
    return Attempt(device=record.device.name, kind=kind, time_us=time_us)
