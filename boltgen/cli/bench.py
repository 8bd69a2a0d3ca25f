"""The commands `boltgen bench ...`."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from boltgen.cli.console import errors_for_people, out
from boltgen.cli.flags import Debug
from boltgen.errors import BoltgenError

bench_app = typer.Typer(help="Measurements of the suite for GPUs.", no_args_is_help=True)
_SUITE = "benchmarks.gpu.report"


@bench_app.callback()
def _commands() -> None:
    """Measurements of the suite for GPUs."""


def _suite() -> ModuleType:
    """The suite's report: it lies beside the package in a checkout, and is not installed."""
    try:
        return importlib.import_module(_SUITE)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "matplotlib":
            raise BoltgenError(
                "the report's plots need matplotlib: `pip install 'boltgen[bench]'`"
            ) from error
        raise BoltgenError(
            f"{_SUITE} cannot be imported ({error}): run `boltgen bench` in a checkout of boltgen, "
            "with its folder on PYTHONPATH"
        ) from error


@bench_app.command("report")
def report_command(
    slices: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Folders of slices.")
    ] = None,
    arch: Annotated[str, typer.Option(help="Without slices: what to predict for.")] = "sm_90",
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder that has results/ and recorded/.")
    ] = Path("benchmarks"),
    debug: Debug = False,
) -> None:
    """Merge slices of `run_gpu_suite.py` to tables, plots and records.

    \b
    Examples:
      boltgen bench report results-1 results-2
      boltgen bench report --arch sm_90
    """
    with errors_for_people(debug):
        made = _suite().make_report(slices or [], output, arch)
    out.print(f"{made.folder}: {made.measured} items measured, {made.failed} failed")
    if made.records:
        out.print(f"{made.records}: what section tune recorded")
