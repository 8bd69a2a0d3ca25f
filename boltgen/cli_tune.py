"""The command `boltgen tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from boltgen import report, tuner
from boltgen.build.progress import reporter_for
from boltgen.cli_console import (
    Accumulate,
    Debug,
    Frontend,
    Fuse,
    Jobs,
    Pad,
    Shape,
    err,
    errors_for_people,
    out,
    parse_shape,
)
from boltgen.families.family import Level
from boltgen.tune.progress_bar import observer_for
from boltgen.tune.session import SessionOptions

KEPT = "what was measured is kept: the same command goes on from there"


def tune_command(  # noqa: PLR0917 (typer's options are arguments)
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")],
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_80",
    budget: Annotated[
        str, typer.Option(help="How long: 120s, 10min, 1h, or a number of trials like 500trials.")
    ] = "120s",
    device: Annotated[
        str,
        typer.Option(
            help="Where to measure: cuda, cuda:1, vgpu (modelled times, no GPU needed), or "
            "recorded:FILE (a table of records)."
        ),
    ] = "cuda",
    level: Annotated[
        Level, typer.Option(help="How many kernels round one tries, as of `library build`.")
    ] = Level.STANDARD,
    shape: Shape = None,
    jobs: Jobs = None,
    accumulate: Accumulate = "float32",
    fuse: Fuse = True,
    pad: Pad = True,
    frontend: Frontend = None,
    database: Annotated[
        Path | None, typer.Option(help="Where to remember; by default in the user's data folder.")
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait for another session on the same GPU, or give up.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Measure kernels for a model, and remember the times for `boltgen compile`.

    Round one ranks the configurations of each problem with a plain epilogue, round two times the
    fastest ones as they ship, and products in sequence as one kernel. Every outcome is remembered
    at once: Ctrl-C or a crash loses nothing, and the same command goes on where it was. Nothing is
    measured twice.

    Examples:

        boltgen tune resnet50.onnx --arch sm_80 --budget 120s

        boltgen tune resnet50.onnx --arch sm_86 --budget 500trials --device vgpu

        boltgen tune bert.onnx --shape input_ids=1,128 --device recorded:a100.jsonl.gz
    """
    with errors_for_people(debug, interrupted=KEPT):
        done = tuner.tune(
            model,
            arch,
            dict(parse_shape(text) for text in shape or []),
            budget=budget,
            device=device,
            database=database,
            options=SessionOptions(level=level, wait=wait),
            jobs=jobs,
            accumulate=accumulate,
            fuse=fuse,
            pad=pad,
            frontend=frontend,
            reporter=reporter_for(err),
            observer=observer_for(err),
        )
    out.print(report.tuned(done))
    out.print(Text(report.tuning_summary(done)), soft_wrap=True)
