"""The command `boltgen check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from boltgen.artifact.checked import LibraryCheck
from boltgen.artifact.metadata import read_metadata
from boltgen.check.kernels import check_kernels
from boltgen.check.model import check_model
from boltgen.cli.terminal.console import err, errors_for_people, out, reporter, say
from boltgen.cli.terminal.ending import CHECK_FAILED
from boltgen.cli.terminal.flags import Debug, Folder, with_options
from boltgen.errors import ArtifactError
from boltgen.intake.choices import CheckLevel
from boltgen.options import CompileOptions
from boltgen.running.artifact import LIBRARY, Artifact, file_digest
from boltgen.settings import settings_from


@with_options(CompileOptions, only=frozenset({"check", "jobs"}))
def check_command(*, folder: Folder, options: CompileOptions, debug: Debug = False) -> None:
    """Execute every kernel of a compiled model on the virtual GPU.

    Earlier results are not reused. Ends with status 3 if a kernel is wrong, or if the library was
    changed after compilation.

    \b
    Examples:
      boltgen check resnet50
      boltgen check resnet50 --check full
    """
    level = options.check
    with errors_for_people(debug):
        metadata = read_metadata(folder)
        is_foreign = _digest(folder) != metadata.library_sha256
        if settings_from().trusted_keys:
            Artifact.load(folder)  # rejects an unsigned library before it is executed
        found = LibraryCheck(level=level)
        if level is not CheckLevel.NONE:
            found = check_kernels(
                folder,
                metadata,
                settings_from(),
                reporter=reporter(),
                workers=options.jobs,
            )
        if level is CheckLevel.FULL and not is_foreign:
            model = check_model(Artifact(folder.resolve(), metadata))
            found = replace(found, level=level, model=model)
    if found.kernels:
        out.print(_table(found))
    say(str(found))
    if is_foreign:
        said = f"{folder / LIBRARY} is not the file that was compiled: its SHA-256 differs"
        err.print(Text(said, style="bold red"), soft_wrap=True)
    if is_foreign or not found.passed:
        raise typer.Exit(CHECK_FAILED)


def _digest(folder: Path) -> str:
    try:
        return file_digest(folder / LIBRARY)
    except OSError as error:
        raise ArtifactError(
            f"{folder / LIBRARY} cannot be read: {error.strerror or error}; compile it again"
        ) from error


def _table(found: LibraryCheck) -> Table:
    """List each kernel, its launches, and the result of its check."""
    table = Table("kernel", "launches", "largest error / bound", "seconds", "")
    for kernel in found.kernels:
        worst = "" if kernel.worst_error is None else f"{kernel.worst_error:.2g}"
        verdict = Text("passed") if kernel.passed else Text(kernel.faults[0], style="bold red")
        name = Text(kernel.symbol, overflow="fold")
        table.add_row(name, str(len(kernel.launches)), worst, f"{kernel.seconds:.2f}", verdict)
    return table
