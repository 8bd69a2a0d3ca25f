"""`boltgen advise`: a model in, changes that its author would get nearly for free out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boltgen.arch import arch_named
from boltgen.ir.workload import Layer
from boltgen.partitioned import frontend_named, import_model, partition
from boltgen.pipeline import PipelineOptions
from boltgen.runtime.coverage import Coverage, coverage
from boltgen.stored import own_compilers, stored_measurements
from boltgen.tune.advice import Advice, NamedLayer, advise


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdvice:
    """What of a model boltgen computes and why not the rest, and changes that cost little."""

    coverage: Coverage
    changes: tuple[Advice, ...]


def advise_model(
    model: object,
    arch: str = "sm_80",
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    frontend: str | None = None,
) -> ModelAdvice:
    """What keeps `model`'s products from kernels, and changes of layers that cost little on `arch`.

    Costs are measured ones where there are times before and after a change, else the analytical
    model's.

    Layers that are the same problem are told of once, under the name of the first.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    options = PipelineOptions(fuse=False)
    partitioned = import_model(model, shapes or {}, frontend_named(frontend), options)
    partition(partitioned, row.name, options)
    layers: dict[Layer, NamedLayer] = {}
    for region in partitioned.regions:
        named = NamedLayer(name=f"{region.symbol}: {region.label}", layer=region.workload.single)
        layers.setdefault(named.layer, named)
    tools = own_compilers(options.settings)
    with stored_measurements(row, tools, options.settings) as measurements:
        changes = advise(tuple(layers.values()), row, measurements)
    return ModelAdvice(coverage=coverage(partitioned.partitioned.placements), changes=changes)
