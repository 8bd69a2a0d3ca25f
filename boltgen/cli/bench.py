"""The commands `boltgen bench ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boltgen.cli.terminal.console import errors_for_people, out
from boltgen.cli.terminal.flags import Debug
from boltgen.errors import BoltgenError
from boltgen.installation import install_command

bench_app = typer.Typer(help="Measurements of the suite for GPUs.", no_args_is_help=True)


@bench_app.callback()
def _commands() -> None:
    """Measurements of the suite for GPUs."""


@bench_app.command("report")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of results.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder for results/ and recorded/.")
    ] = Path("benchmarks"),
    debug: Debug = False,
) -> None:
    """Merge results of `run_gpu_suite.py` into tables, plots and records.

    \b
    Examples:
      boltgen bench report results-1 results-2
    """
    with errors_for_people(debug):
        try:
            from boltgen.bench.report import make_report  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            raise BoltgenError(
                f"the report's plots need matplotlib: `{install_command('bench')}`"
            ) from error
        made = make_report(folders, output)
    out.print(f"{made.folder}: {made.measured} items measured, {made.failed} failed")
    if made.records:
        out.print(f"{made.records}: records of what was timed")
