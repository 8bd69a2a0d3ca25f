"""All commands in one program, and the status that it ends with."""

from __future__ import annotations

import logging

import typer

from boltgen.cli.advise import advise_command
from boltgen.cli.bench import bench_app
from boltgen.cli.check import check_command
from boltgen.cli.compile import compile_command, run_command, tune_command
from boltgen.cli.console import WarningsHandler, say_ending
from boltgen.cli.db import db_app
from boltgen.cli.ending import REFUSED, flush_streams
from boltgen.cli.inspect import inspect_command
from boltgen.cli.library import library_app
from boltgen.cli.machine import doctor_command, setup_relay_command, vgpu_app
from boltgen.cli.report import report_command
from boltgen.cli.serve import serve_command
from boltgen.cli.sign import sign_command

# Without rich's boxes a terminal of 80 columns has room for what is said; see the tests of `cli`.
app = typer.Typer(
    help="Compile models with CUTLASS kernels inside TVM, and run them on a GPU or without one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("compile")(compile_command)
app.command("run")(run_command)
app.command("serve")(serve_command)
app.command("inspect")(inspect_command)
app.command("report")(report_command)
app.command("sign")(sign_command)
app.command("check")(check_command)
app.command("tune")(tune_command)
app.command("advise")(advise_command)
app.add_typer(library_app, name="library")
app.add_typer(db_app, name="db")
app.add_typer(bench_app, name="bench")
app.add_typer(vgpu_app, name="vgpu")
app.command("doctor")(doctor_command)
app.command("setup-relay")(setup_relay_command)


def main() -> int:
    """The program `boltgen`: obey the command line; the status to end with."""
    logging.getLogger("boltgen").addHandler(WarningsHandler(logging.WARNING))
    try:
        app(prog_name="boltgen")
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:  # what a command raises while it prints
        status = say_ending(error, "nothing half-written was kept")
    code = status if isinstance(status, int) else REFUSED if status else 0
    return code if flush_streams() else code or REFUSED
