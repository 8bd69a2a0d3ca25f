"""The command `boltgen advise`: a model in, changes that come nearly free out."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.cli import tables
from boltgen.cli.console import errors_for_people, out, say
from boltgen.cli.flags import DEFAULT_ARCH, Arch, Debug, Model, with_options
from boltgen.ir.workload import Layer
from boltgen.options import ModelOptions
from boltgen.pipeline import PipelineOptions
from boltgen.runtime.asked_arch import asked_arch
from boltgen.runtime.coverage import Coverage, coverage
from boltgen.runtime.model import import_model, partition
from boltgen.stored import own_compilers, stored_measurements
from boltgen.tuning.advice import Advice, NamedLayer, advise


@with_options(ModelOptions, only=frozenset({"shapes", "frontend"}))
def advise_command(
    *, model: Model, arch: Arch = DEFAULT_ARCH, options: ModelOptions, debug: Debug = False
) -> None:
    """Say what keeps products from kernels, and what to change.

    What stays with TVM is named with the reason and the remedy, the largest first. Changes of the
    layers that have kernels come nearly free: channels of a multiple of eight, another activation,
    a 1x1 convolution in the same kernel, with each layer's time before and after. Times are
    measured ones where a device has timed both, else predicted by the analytical model. Nothing is
    compiled.

    \b
    Example:
      boltgen advise repvgg_a0.onnx --arch sm_75
    """
    with errors_for_people(debug, interrupted="nothing was written"):
        given = advise_model(model, arch, options)
    if given.coverage.rest:
        out.print(tables.rest(given.coverage))
    out.print(tables.advice(given.changes))
    say(given.coverage.verdict())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdvice:
    """What of a model boltgen computes and why not the rest, and changes that cost little."""

    coverage: Coverage
    changes: tuple[Advice, ...]


def advise_model(model: object, arch: str, options: ModelOptions) -> ModelAdvice:
    """What keeps `model`'s products from kernels, and changes of layers that cost little on `arch`.

    Costs are measured ones where there are times before and after a change, else the analytical
    model's. Layers that are the same problem are told of once, under the name of the first. Those
    of attention are one kernel however they are changed, and are told of nowhere.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
    """
    row = asked_arch(arch)
    pipeline = PipelineOptions(**{**options.of_model, "fuse": False})
    partitioned = import_model(model, pipeline)
    partition(partitioned, row.name, pipeline)
    layers: dict[Layer, NamedLayer] = {}
    for region in partitioned.regions:
        if region.workload.is_fused:
            continue
        named = NamedLayer(name=f"{region.symbol}: {region.label}", layer=region.workload.single)
        layers.setdefault(named.layer, named)
    tools = own_compilers(pipeline.settings)
    with stored_measurements(row, tools, pipeline.settings) as measurements:
        changes = advise(tuple(layers.values()), row, measurements)
    return ModelAdvice(coverage=coverage(partitioned.partitioned.placements), changes=changes)
