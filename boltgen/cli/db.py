"""The commands `boltgen db ...`."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from boltgen.cli.terminal import tables
from boltgen.cli.terminal.console import errors_for_people, out
from boltgen.cli.terminal.flags import Debug
from boltgen.cost import learned
from boltgen.device.gpu_names import require_arch
from boltgen.errors import InputError, RecordError
from boltgen.intake.numerals import MOST_ROWS, counted, shown
from boltgen.ir.outcome import DeviceKind
from boltgen.problems.kinds import KINDS
from boltgen.settings import settings_from
from boltgen.stored import database_path, own_toolchain
from boltgen.tuning.choice.examples import examples
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.exchange import read_records, write_records
from boltgen.tuning.database.query import Query
from boltgen.tuning.database.records import checked

db_app = typer.Typer(help="The database of measurements.", no_args_is_help=True)

Where = Annotated[
    Path | None,
    typer.Option(
        "--database", metavar="FILE", help="By default the one in the user's data folder."
    ),
]
OfArch = Annotated[
    str | None, typer.Option("--arch", metavar="GPU", help="Of this architecture: sm_80, or A100.")
]
OfKind = Annotated[
    DeviceKind | None, typer.Option("--kind", help="Measured, modelled or replayed times.")
]
OfDevice = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Of devices with this in their name: A100."),
]
OfToolchain = Annotated[
    str | None,
    typer.Option(
        "--toolchain", metavar="TEXT", help="By toolchains with this in their text: CUTLASS 4.2."
    ),
]
OfOperation = Annotated[
    str | None,
    typer.Option("--operation", metavar="KIND", help="With a layer of that kind: Gemm or Conv2d."),
]
Before = Annotated[
    datetime | None,
    typer.Option("--before", metavar="DAY", help="Measured before this day, or instant, in UTC."),
]
Void = Annotated[
    bool | None,
    typer.Option("--void/--valid", help="Only records of changed kernels, or only of others."),
]
Failures = Annotated[
    bool | None, typer.Option("--failures/--times", help="Only failures, or only times.")
]


def _open(where: Path | None) -> Database:
    database = Database(where or database_path(settings_from()))
    if database.set_aside:
        out.print(
            Text(
                f"{database.path} was damaged and is now {database.set_aside}; a new one is begun"
            ),
            soft_wrap=True,
        )
    return database


def _asked(context: typer.Context) -> Query:
    """Build a query from a command's options, whose names are the query's fields."""
    names = {field.name for field in fields(Query)}
    asked = Query(**{name: value for name, value in context.params.items() if name in names})
    if asked.arch is not None:
        asked = replace(asked, arch=require_arch(asked.arch))
    if asked.operation is not None:
        known = {kind.__name__.lower(): kind.__name__ for kind in KINDS.problem_types}
        if asked.operation.lower() not in known:
            raise InputError(
                f"--operation {shown(asked.operation)}: give one of {', '.join(known.values())}"
            )
        asked = replace(asked, operation=known[asked.operation.lower()])
    return asked


@db_app.command()
def stats(database: Where = None, debug: Debug = False) -> None:
    """Show the devices and toolchains, with the numbers of their records.

    \b
    Example:
      boltgen db stats
    """
    with errors_for_people(debug), _open(database) as opened:
        found = [(source, opened.void_records(source)) for source in opened.sources()]
        out.print(tables.sources(found, own_toolchain(settings_from())))
        out.print(Text(f"{opened.path}, {opened.size_bytes / 1e6:.1f} MB"), soft_wrap=True)


@db_app.command()
def query(  # noqa: PLR0917 (typer's options are arguments)
    context: typer.Context,
    arch: OfArch = None,
    kind: OfKind = None,
    device: OfDevice = None,
    toolchain: OfToolchain = None,
    operation: OfOperation = None,
    before: Before = None,
    failures: Failures = None,
    void: Void = None,
    best: Annotated[bool, typer.Option("--best", help="Only the fastest of each problem.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Show at most so many.")
    ] = 50,
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Show records.

    \b
    Examples:
      boltgen db query --best --arch sm_80
      boltgen db query --failures --operation Conv2d
    """
    with errors_for_people(debug), _open(database) as opened:
        asked = _asked(context)
        found = list(itertools.islice(opened.records(asked, best=best), limit))
        out.print(tables.records(found) if found else "no record fits these options")


@db_app.command("export")
def export_command(  # noqa: PLR0917
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="records.jsonl or records.jsonl.gz")],
    arch: OfArch = None,
    kind: OfKind = None,
    device: OfDevice = None,
    toolchain: OfToolchain = None,
    operation: OfOperation = None,
    before: Before = None,
    failures: Failures = None,
    void: Void = None,
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Write records to a file, a line of JSON each.

    The file is compressed if its name ends in .gz.

    \b
    Example:
      boltgen db export a100.jsonl.gz --device A100
    """
    with errors_for_people(debug), _open(database) as opened:
        asked = _asked(context)
        count = write_records(file, opened.records(asked))
        out.print(Text(f"{counted(count, 'record')} written to {file}"), soft_wrap=True)


@db_app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of `export`.")],
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Add the records of files.

    A file with an invalid line adds nothing. Records of other devices, drivers and toolchains stay
    apart from yours.

    \b
    Example:
      boltgen db import a100.jsonl.gz
    """
    with errors_for_people(debug), _open(database) as opened:
        for file in files:
            count = opened.add(read_records(file))
            out.print(Text(f"{counted(count, 'new record')} from {file}"), soft_wrap=True)


@db_app.command()
def merge(
    others: Annotated[list[Path], typer.Argument(metavar="DATABASE...", help="Other databases.")],
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Add the records of other databases, which are not changed.

    \b
    Example:
      boltgen db merge /mnt/colleague/boltgen/records.sqlite
    """
    with errors_for_people(debug), _open(database) as opened:
        for path in others:
            with Database(path, read_only=True) as other:
                count = opened.add(map(checked, other.records()))
            out.print(Text(f"{counted(count, 'new record')} from {path}"), soft_wrap=True)


@db_app.command()
def train(  # noqa: PLR0917
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model: a100.ubj")],
    arch: OfArch = None,
    kind: OfKind = DeviceKind.CUDA,
    device: OfDevice = None,
    toolchain: OfToolchain = None,
    operation: OfOperation = None,
    before: Before = None,
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Train a cost model on the records that the options select.

    By default these are measured times. Cross-validation leaves out problems in turn; the model is
    written only if it ranks them better than the analytical model.

    \b
    Examples:
      boltgen db train a100.ubj --device A100
      boltgen tune model.onnx --cost-model a100.ubj
    """
    with errors_for_people(debug), _open(database) as opened:
        if file.suffix != learned.SUFFIX:
            raise InputError(f"{file}: the name of a cost model ends in {learned.SUFFIX}")
        model = learned.train(examples(opened.records(_asked(context))))
        found = model.training
        told = (
            f"{found.times} times of {found.problems} problems; on unseen problems the "
            f"first pick took {found.regret:.3f} of the fastest's time (analytical: "
            f"{found.analytical_regret:.3f}), off by {found.log_error:.0%} (analytical: "
            f"{found.analytical_log_error:.0%})"
        )
        if found.regret >= found.analytical_regret:
            raise RecordError(f"the analytical model picks as well: {told}; nothing is written")
        model.save(file)
        out.print(Text(f"{told}; written to {file}"), soft_wrap=True)


@db_app.command()
def prune(  # noqa: PLR0917
    context: typer.Context,
    arch: OfArch = None,
    kind: OfKind = None,
    device: OfDevice = None,
    toolchain: OfToolchain = None,
    operation: OfOperation = None,
    before: Before = None,
    failures: Failures = None,
    void: Void = None,
    database: Where = None,
    debug: Debug = False,
) -> None:
    """Delete the records that the options select.

    At least one option is needed. The next session measures deleted trials again.

    \b
    Examples:
      boltgen db prune --failures
      boltgen db prune --void
      boltgen db prune --before 2026-01-01
    """
    with errors_for_people(debug):
        asked = _asked(context)
    if asked == Query():
        raise typer.BadParameter("say which records to forget, by at least one option")
    with errors_for_people(debug), _open(database) as opened:
        out.print(f"{counted(opened.prune(asked), 'record')} forgotten")
