"""The command `boltgen report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boltgen.cli.console import errors_for_people, say
from boltgen.cli.flags import Debug, Folder
from boltgen.errors import BoltgenError
from boltgen.intake.files import written_whole
from boltgen.report.compare import compared
from boltgen.report.facts import Facts, facts_of
from boltgen.report.page import page
from boltgen.runtime.artifact import Artifact


def report_command(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="DIR", help="Another compiled model to compare with."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a page of HTML about a compiled model.

    The page needs no other file and no network. It shows what runs where and why, the time of each
    region and where that time is from, a roofline, the kernels' sources, what was padded and
    joined, and what the check found.

    \b
    Examples:
      boltgen report resnet50 -o resnet50.html
      boltgen report resnet50-tuned --against resnet50
    """
    with errors_for_people(debug):
        ours = _facts(folder)
        text = page(ours, compared(ours, _facts(against)) if against is not None else None)
        try:
            with written_whole(output) as staged:
                staged.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BoltgenError(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"wrote {output}")


def _facts(folder: Path) -> Facts:
    artifact = Artifact.load(folder)
    return facts_of(artifact.folder, artifact.metadata)
