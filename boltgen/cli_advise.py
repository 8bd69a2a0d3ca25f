"""The command `boltgen advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from boltgen import report
from boltgen.advisor import advise_model
from boltgen.cli_console import Debug, Frontend, Shape, errors_for_people, out, parse_shape


def advise_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")],
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_80",
    shape: Shape = None,
    frontend: Frontend = None,
    debug: Debug = False,
) -> None:
    """Name what keeps products from kernels, and changes of layers that come nearly free.

    What stays with TVM is named with the reason and the remedy, the largest first. Of the layers
    that have kernels: channels of a multiple of eight, another activation, a 1x1 convolution in the
    same kernel, with each layer's time before and after. Times are measured ones where a device has
    timed both, else predicted by the analytical model. Nothing is compiled.

    Example:

        boltgen advise repvgg_a0.onnx --arch sm_75
    """
    with errors_for_people(debug, interrupted="nothing was written"):
        shapes = dict(parse_shape(text) for text in shape or [])
        given = advise_model(model, arch, shapes, frontend=frontend)
    if given.coverage.rest:
        out.print(report.rest(given.coverage))
    out.print(report.advice(given.changes))
    out.print(Text(given.coverage.verdict()), soft_wrap=True)
