"""The program with all commands, and its exit status."""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from boltgen.cli.advise import advise_command
from boltgen.cli.bench import bench_app
from boltgen.cli.check import check_command
from boltgen.cli.compile import compile_command, run_command, tune_command
from boltgen.cli.db import db_app
from boltgen.cli.inspect import inspect_command
from boltgen.cli.library import library_app
from boltgen.cli.machine import doctor_command, setup_relay_command, vgpu_app
from boltgen.cli.quantize import quantize_command
from boltgen.cli.report import report_command
from boltgen.cli.serve import serve_command
from boltgen.cli.sign import sign_command
from boltgen.cli.terminal.console import LogHandler, be_verbose, out, say_ending
from boltgen.cli.terminal.ending import REFUSED, STATUSES, flush_streams
from boltgen.cli.why import why_command

_STATUSES = "; ".join(f"{status} {meaning}" for status, meaning in STATUSES.items())


def _hear_verbose(count: int) -> None:
    if count:
        be_verbose(count)


def _hear_quiet(asked: bool) -> None:
    if asked:
        be_verbose(-1)


def _common() -> list[Any]:
    """Return the options that every command has, before and after its name."""
    options = typer.Typer(add_completion=False)

    @options.command()
    def command(
        verbose: Annotated[
            int,
            typer.Option(
                "-v",
                "--verbose",
                count=True,
                callback=_hear_verbose,
                show_default=False,
                metavar="",
                help="Say more; -vv says all that is logged.",
            ),
        ] = 0,
        quiet: Annotated[
            bool,
            typer.Option(
                "-q",
                "--quiet",
                callback=_hear_quiet,
                help="Only results and errors: no progress, no warnings.",
            ),
        ] = False,
    ) -> None:
        del verbose, quiet

    made = typer.main.get_command(options).params
    for option in made:
        option.expose_value = False  # commands do not receive them
    return list(made)


class _Program(TyperGroup):
    """The group of all commands; each takes the common options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _give(self)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Reset the state of an earlier command line in this process, then parse."""
        be_verbose(0)
        return super().make_context(*arguments, **settings)


def _give(command: Any) -> None:
    command.params += _common()
    for each in getattr(command, "commands", {}).values():
        _give(each)


# Without rich's boxes the texts fit into 80 columns; the tests of `cli` check it.
app = typer.Typer(
    cls=_Program,
    epilog=f"Exit status: {_STATUSES}.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"boltgen {importlib.metadata.version('boltgen')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Compile models with CUTLASS kernels inside TVM, and run them on a GPU or without one."""


app.command("compile")(compile_command)
app.command("run")(run_command)
app.command("serve")(serve_command)
app.command("inspect")(inspect_command)
app.command("report")(report_command)
app.command("sign")(sign_command)
app.command("check")(check_command)
app.command("tune")(tune_command)
app.command("quantize")(quantize_command)
app.command("advise")(advise_command)
app.command("why")(why_command)
app.add_typer(library_app, name="library")
app.add_typer(db_app, name="db")
app.add_typer(bench_app, name="bench")
app.add_typer(vgpu_app, name="vgpu")
app.command("doctor")(doctor_command)
app.command("setup-relay")(setup_relay_command)


def main() -> int:
    """Run the program `boltgen` with the command line, and return the exit status."""
    logging.getLogger("boltgen").addHandler(LogHandler())
    try:
        app(prog_name="boltgen")
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:  # an error while a command prints
        status = say_ending(error, "nothing half-written was kept")
    code = status if isinstance(status, int) else REFUSED if status else 0
    return code if flush_streams() else code or REFUSED
