"""The commands about this machine: `boltgen doctor`, `setup-relay` and `vgpu run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from boltgen.build.relay_env import make_relay_environment
from boltgen.build.vgpu import vgpu_libraries
from boltgen.cli.terminal.console import err, errors_for_people, out, reporter
from boltgen.cli.terminal.flags import Debug
from boltgen.device.doctor import Verdict, examine
from boltgen.device.vgpu_program import run_program
from boltgen.intake.numerals import MOST_JOBS
from boltgen.settings import settings_from


def setup_relay_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The environment to make.")],
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Python to use (3.10 to 3.12).")
    ] = None,
    debug: Debug = False,
) -> None:
    """Make an environment with boltgen and a TVM with Relay.

    \b
    Example:
      boltgen setup-relay relay-env && relay-env/bin/boltgen doctor
    """
    again = "the environment is not whole: give the same command again"
    with errors_for_people(debug, interrupted=again):
        made = make_relay_environment(folder, python=python, reporter=reporter())
    out.print(f"TVM 0.17 with Relay: {made}", soft_wrap=True)


def doctor_command(debug: Debug = False) -> None:
    """Look for what boltgen needs; say how to get what is missing.

    Ends with status 1 if something is missing.

    \b
    Example:
      boltgen doctor
    """
    styles = {Verdict.FINE: "green", Verdict.OPTIONAL: "yellow", Verdict.BROKEN: "bold red"}
    table = Table("", "what", "where, or what to do")
    with errors_for_people(debug):
        findings = list(examine(settings_from(), reporter()))
    for found in findings:
        verdict = Text(found.verdict.value, style=styles[found.verdict])
        table.add_row(verdict, found.subject, Text(found.detail, overflow="fold"))
    out.print(table)
    if any(found.verdict is Verdict.BROKEN for found in findings):
        raise typer.Exit(1)


vgpu_app = typer.Typer(help="The virtual GPU by itself.", no_args_is_help=True)


@vgpu_app.callback()
def _commands() -> None:
    """The virtual GPU by itself."""


@vgpu_app.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run_command(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGS]", help="The program to run.")
    ],
    device: Annotated[
        str | None,
        typer.Option(
            metavar="SM",
            help="sm_75, sm_80 (default), sm_86, sm_89, sm_90, sm_100, sm_103, sm_120 or sm_121.",
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="A check to switch on; may be given several times."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_JOBS, metavar="N", help="Host threads; default: all."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="NAME=VALUE", help="See vgpu/README.md."),
    ] = None,
) -> None:
    """Run a CUDA program without a GPU.

    The program must load CUDA's runtime or driver as a shared library, and its fat binary must
    contain PTX: `nvcc -cudart shared --no-compress -gencode
    arch=compute_80,code=[sm_80,compute_80]`. Ends with the program's own status.

    \b
    Examples:
      boltgen vgpu run -- ./vector_add
      boltgen vgpu run --device sm_89 --check memcheck -- ./program --size 64
    """
    options = dict(item.partition("=")[::2] for item in option or [])
    if device:
        options["device"] = device
    if check:
        options["check"] = ",".join(check)
    if threads:
        options["threads"] = str(threads)
    with errors_for_people(debug=False):
        settings = settings_from()
        libraries = vgpu_libraries(settings, reporter=reporter())
        done = run_program(command, libraries=libraries, options=options, settings=settings)
    if done.returncode < 0:
        err.print(f"{command[0]} was ended by signal {-done.returncode}")
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
