"""The command `boltgen quantize`: writes a model with integers where they pay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import boltgen
from boltgen.cli.terminal.console import errors_for_people, out, say
from boltgen.cli.terminal.flags import DEFAULT_ARCH, Arch, Debug
from boltgen.intake.numerals import counted
from boltgen.quantiser.quantise import (
    DEFAULT_MOST_ERROR,
    DEFAULT_SMOOTH,
    LayerReport,
    QuantisationReport,
)


def quantize_command(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file in FP32.")],
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="An .npz file with samples: an array for each input. May be given several times.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The ONNX file to write.")
    ],
    arch: Arch = DEFAULT_ARCH,
    observer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How the range of a tensor's integers is chosen: minmax, percentile, entropy, or "
            "mse, the least mean square error.",
        ),
    ] = "mse",
    smooth: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Move outliers of normalised activations into weights: from 0, nothing, to 1.",
        ),
    ] = DEFAULT_SMOOTH,
    most_error: Annotated[
        float,
        typer.Option(metavar="SHARE", help="The largest relative error of the model's results."),
    ] = DEFAULT_MOST_ERROR,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER", help="A layer to leave in floats. Several are allowed."),
    ] = None,
    even_if_slower: Annotated[
        bool,
        typer.Option(
            "--even-if-slower", help="Quantise what is accurate enough, whatever times say."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Quantise the layers of a model to INT8 where that is faster.

    Runs the model on the samples with ONNX Runtime. A layer is a matmul or a convolution with a
    constant weight. It stays in floats if INT8 is predicted to make it, or the whole model, no
    faster on the architecture, or if results would be too wrong. The result is an ONNX model with
    QuantizeLinear and DequantizeLinear, which `compile` takes.

    \b
    Examples:
      boltgen quantize resnet50.onnx --data images.npz -o resnet50_int8.onnx
      boltgen quantize bert.onnx --data texts.npz -o bert_int8.onnx --arch sm_75
    """
    with errors_for_people(debug, interrupted="nothing was written"):
        report = boltgen.quantize(
            model,
            data,
            output,
            arch=arch,
            observer=observer,
            smooth=smooth,
            most_error=most_error,
            keep=keep or (),
            even_if_slower=even_if_slower,
        )
    out.print(_table(report))
    for line in _summary(report):
        say(line)


def _table(report: QuantisationReport) -> Table:
    table = Table("layer", "in", "error", "FP16 us", "INT8 us", "because")
    for each in report.layers:
        error = "" if each.error is None else f"{each.error:.2g}"
        kind = "INT8" if each.is_quantised else "floats"
        table.add_row(Text(each.name), kind, error, *_times(each), Text(each.reason))
    return table


def _times(layer: LayerReport) -> tuple[str, str]:
    if layer.float_us is None or layer.integer_us is None:
        return "", ""
    return f"{layer.float_us:.1f}", f"{layer.integer_us:.1f}"


def _summary(report: QuantisationReport) -> Iterator[str]:
    yield (
        f"{report.quantised} of {counted(len(report.layers), 'layer')} in INT8: the whole model is "
        f"predicted to take {report.quantised_us:.1f} us, {report.float_us:.1f} us in FP16; the "
        f"results' relative error is {report.error:.2g}"
    )
    if report.smoothed:
        yield f"outliers of {counted(len(report.smoothed), 'activation')} are in weights"
    yield f"wrote {report.output}"
