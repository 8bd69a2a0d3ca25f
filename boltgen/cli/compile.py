"""The commands `boltgen compile`, `tune` and `run`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import boltgen
from boltgen import tuner
from boltgen.build.gpu_probe import device_architecture
from boltgen.cli.inspect import summary
from boltgen.cli.terminal import tables
from boltgen.cli.terminal.console import errors_for_people, observer, out, reporter, say
from boltgen.cli.terminal.flags import (
    DEFAULT_ARCH,
    Arch,
    ArchOrNone,
    Debug,
    Folder,
    Model,
    Models,
    with_options,
)
from boltgen.errors import BoltgenError
from boltgen.ir.outcome import DeviceKind
from boltgen.options import CompileOptions, TuneOptions
from boltgen.running.arrays import read_arrays, write_arrays
from boltgen.running.artifact import Artifact, replaceable

_KEPT = "what was measured is kept: the same command goes on from there"
_NOTHING_KEPT = "nothing half-written was kept"


@with_options(CompileOptions)
def compile_command(
    *,
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to write.")
    ],
    arch: Arch = DEFAULT_ARCH,
    options: CompileOptions,
    debug: Debug = False,
) -> None:
    """Compile a model to a folder with one deployable library.

    \b
    Examples:
      boltgen compile resnet50.onnx --arch sm_80 -o resnet50
      boltgen compile bert.onnx --shape input_ids=1,128 -o bert --jobs 4
      boltgen compile resnet50.onnx -o resnet50 --tune 120s --device cuda
      boltgen compile bert.onnx -o bert --calibrate sentences.npz
    """
    kept = _KEPT if options.tune else _NOTHING_KEPT
    if options.trace is not None:
        kept += f"; the trace in {options.trace} is not whole"
    with errors_for_people(debug, interrupted=kept):
        replaceable(output)
        if options.trace is not None:
            _require_apart(options.trace, output)
        if options.tune is not None:
            _require_device(options.device)
        heard = replace(options, reporter=reporter(), observer=observer())
        artifact = boltgen.compile(model, arch=arch, options=heard)
        artifact.save(output)
        saved = Artifact.load(output, trusted_keys=())  # it is not signed yet
    if options.trace is not None:
        say(f"wrote the trace to {options.trace}; `boltgen report --trace` shows it")
    if saved.metadata.ranges:
        out.print(tables.ranges(saved.metadata))
    for line in tables.phases(saved.metadata):
        say(line)
    for line in summary(saved):
        say(line)


@with_options(TuneOptions)
def tune_command(
    *, models: Models, arch: ArchOrNone = None, options: TuneOptions, debug: Debug = False
) -> None:
    """Measure kernels for models, for `compile` to choose by.

    Round one ranks the configurations of each problem with a plain epilogue. Round two times the
    fastest ones with their real epilogues, and fused sequences of matmuls. Every outcome is stored
    at once: Ctrl-C or a crash loses nothing, and the same command continues. Nothing is measured
    twice.

    \b
    Examples:
      boltgen tune resnet50.onnx --arch sm_80 --budget 120s
      boltgen tune resnet50.onnx --arch sm_86 --budget 500trials --device vgpu
      boltgen tune bert.onnx --device recorded:a100.jsonl.gz
      boltgen tune a.onnx b.onnx --budget 10min --objective latency:2ms,500us
    """
    with errors_for_people(debug, interrupted=_KEPT):
        _require_device(options.device)
        heard = replace(options, reporter=reporter(), observer=observer())
        done = tuner.tune(models, arch, heard)
    out.print(tables.tuned(done))
    if done.rest:
        out.print(tables.kept(done))
    if any(result.course for result in done.results):
        out.print(tables.searches(done))
    say(tables.tuning_summary(done))


def _require_apart(trace: Path, output: Path) -> None:
    """Check that neither of the compiled model's and the trace's folders contains the other."""
    outer, inner = output.resolve(), trace.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise BoltgenError(
            f"--trace {trace} and --output {output} are in each other: give --trace another folder"
        )


def _require_device(device: str) -> None:
    """Check that there is a GPU, before anything else, if kernels are to be measured on one."""
    kind, _, place = device.partition(":")
    if kind == DeviceKind.CUDA.value:
        device_architecture(int(place or 0), "measure on the virtual GPU: --device vgpu")


def run_command(
    folder: Folder,
    inputs: Annotated[
        Path, typer.Option(metavar="FILE", help="An .npz file with one array per input.")
    ],
    device: Annotated[str, typer.Option(metavar="DEVICE", help="vgpu or cuda.")] = "vgpu",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="An .npz file for the outputs."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a compiled model once.

    \b
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
