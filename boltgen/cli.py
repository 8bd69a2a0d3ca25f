"""The command line: arguments in, calls of the library, tables out. No logic."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import boltgen
from boltgen import report
from boltgen.build.progress import reporter_for
from boltgen.build.relay_env import make_relay_environment
from boltgen.cli_advise import advise_command
from boltgen.cli_bench import bench_app
from boltgen.cli_check import Check, check_command
from boltgen.cli_console import (
    Accumulate,
    Debug,
    Frontend,
    Fuse,
    Jobs,
    Pad,
    Shape,
    WarningsHandler,
    err,
    errors_for_people,
    out,
    parse_shape,
    say_ending,
)
from boltgen.cli_db import db_app
from boltgen.cli_library import library_app
from boltgen.cli_tune import KEPT, tune_command
from boltgen.cli_vgpu import vgpu_app
from boltgen.ending import REFUSED, flush_streams
from boltgen.runtime.arrays import read_arrays, write_arrays
from boltgen.runtime.artifact import Artifact, replaceable
from boltgen.runtime.coverage import coverage
from boltgen.runtime.doctor import Verdict, examine
from boltgen.settings import settings_from
from boltgen.tune.progress_bar import observer_for

app = typer.Typer(
    help="Compile models with CUTLASS kernels inside TVM, and run them on a GPU or without one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(library_app, name="library")
app.add_typer(vgpu_app, name="vgpu")
app.add_typer(db_app, name="db")
app.add_typer(bench_app, name="bench")
app.command("tune")(tune_command)
app.command("advise")(advise_command)
app.command("check")(check_command)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `compile` wrote.")]


@app.command("compile")
def compile_command(  # noqa: PLR0917 (typer's options are arguments)
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_80",
    shape: Shape = None,
    jobs: Jobs = None,
    accumulate: Accumulate = "float32",
    fuse: Fuse = True,
    pad: Pad = True,
    frontend: Frontend = None,
    tune: Annotated[
        str | None,
        typer.Option(help="Measure kernels first, for so long: 120s, 500trials; see `tune`."),
    ] = None,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(
            help="An .npz file with one array per input: run the model on it, and keep in FP32 "
            "what leaves FP16's range. May be given several times."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to measure: cuda, vgpu, or recorded:FILE.")
    ] = "cuda",
    check: Check = "kernels",
    debug: Debug = False,
) -> None:
    """Compile a model to a folder with one deployable library.

    Examples:

        boltgen compile resnet50.onnx --arch sm_80 -o resnet50

        boltgen compile bert.onnx --shape input_ids=1,128 -o bert --jobs 4

        boltgen compile resnet50.onnx -o resnet50 --tune 120s --device cuda

        boltgen compile bert.onnx -o bert --calibrate sentences.npz
    """
    with errors_for_people(debug, interrupted=KEPT if tune else "nothing half-written was kept"):
        replaceable(output)
        artifact = boltgen.compile(
            model,
            arch=arch,
            shapes=dict(parse_shape(text) for text in shape or []),
            jobs=jobs,
            accumulate=accumulate,
            fuse=fuse,
            pad=pad,
            frontend=frontend,
            tune=tune,
            calibrate=[read_arrays(path) for path in calibrate or []],
            device=device,
            check=check,
            reporter=reporter_for(err),
            observer=observer_for(err),
        )
        artifact.save(output)
        saved = Artifact.load(output)
    out.print(report.phases(saved.metadata))
    _print_ranges(saved)
    _print_summary(saved)


@app.command()
def run(
    folder: Folder,
    inputs: Annotated[Path, typer.Option(help="An .npz file with one array per input.")],
    device: Annotated[str, typer.Option(help="vgpu or cuda.")] = "vgpu",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An .npz file for the outputs.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a compiled model once.

    Examples:

        boltgen run resnet50 --inputs image.npz --device vgpu -o scores.npz

        boltgen run resnet50 --inputs image.npz --device cuda
    """
    with errors_for_people(debug):
        outputs = boltgen.load(folder).run(read_arrays(inputs), device=device)
        if output:
            write_arrays(output, outputs)
    table = Table("output", "dtype", "shape", "minimum", "mean", "maximum")
    for name, array in outputs.items():
        found = (array.min(), array.mean(), array.max()) if array.size else ()
        numbers = [f"{number:.5g}" for number in found]
        table.add_row(Text(name), str(array.dtype), str(array.shape), *numbers)
    out.print(table)


@app.command()
def inspect(folder: Folder, debug: Debug = False) -> None:
    """Show which operator of a compiled model runs where, with which kernel, and why.

    Example:

        boltgen inspect resnet50
    """
    with errors_for_people(debug):
        artifact = Artifact.load(folder)
    out.print(report.operators(artifact.metadata))
    out.print(report.kernels(artifact.metadata))
    if artifact.metadata.padding:
        out.print(report.padding(artifact.metadata))
    out.print(report.phases(artifact.metadata))
    _print_ranges(artifact)
    _print_summary(artifact)


@app.command("setup-relay")
def setup_relay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The environment to make.")],
    python: Annotated[
        Path | None, typer.Option(help="The Python to make it of (3.10 to 3.12).")
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a virtual environment with a TVM that has Relay, and boltgen beside it.

    Example:

        boltgen setup-relay relay-env && relay-env/bin/boltgen doctor
    """
    with errors_for_people(debug):
        made = make_relay_environment(folder, python=python, reporter=reporter_for(err))
    out.print(f"TVM 0.17 with Relay: {made}", soft_wrap=True)


@app.command()
def doctor(debug: Debug = False) -> None:
    """Look for everything that boltgen needs, and say what to do about what is missing.

    Ends with status 1 where something is missing.

    Example:

        boltgen doctor
    """
    styles = {Verdict.FINE: "green", Verdict.OPTIONAL: "yellow", Verdict.BROKEN: "bold red"}
    table = Table("", "what", "where, or what to do")
    with errors_for_people(debug):
        findings = list(examine(settings_from(), reporter_for(err)))
    for found in findings:
        verdict = Text(found.verdict.value, style=styles[found.verdict])
        table.add_row(verdict, found.subject, Text(found.detail, overflow="fold"))
    out.print(table)
    if any(found.verdict is Verdict.BROKEN for found in findings):
        raise typer.Exit(1)


def _print_ranges(artifact: Artifact) -> None:
    if artifact.metadata.ranges:
        out.print(report.ranges(artifact.metadata))


def _print_summary(artifact: Artifact) -> None:
    metadata = artifact.metadata
    out.print(
        Text(
            f"{len(metadata.regions)} regions in {len(metadata.kernels)} kernels for "
            f"{metadata.arch}; inputs {'; '.join(map(str, metadata.inputs))}; "
            f"outputs {'; '.join(map(str, metadata.outputs))}"
        ),
        soft_wrap=True,
    )
    for note in metadata.notes:
        out.print(Text(note), soft_wrap=True)
    out.print(report.checked(metadata), soft_wrap=True)
    out.print("worth opening:", style="bold")
    for path in artifact.worth_opening():
        out.print(Text(f"  {path}"), soft_wrap=True)
    out.print(Text(coverage(metadata.placements).verdict()), soft_wrap=True)


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


if __name__ == "__main__":
    sys.exit(main())
