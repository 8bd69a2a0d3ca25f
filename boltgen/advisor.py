"""`boltgen advise`: a model in, changes that its author would get nearly for free out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boltgen.arch import arch_named
from boltgen.ir.region import Region
from boltgen.partitioned import frontend_named, import_model, partition
from boltgen.pipeline import PipelineOptions
from boltgen.stored import own_compilers, stored_measurements
from boltgen.tune.advice import Advice, Layer, advise


def advise_model(
    model: object,
    arch: str = "sm_80",
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    frontend: str | None = None,
) -> tuple[Advice, ...]:
    """Changes of `model`'s layers that cost little on `arch`.

    By what was measured where there are times before and after a change, else by the analytical
    model.

    Layers that are the same problem are told of once, under the name of the first.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    options = PipelineOptions(fuse=False)
    partitioned = import_model(model, shapes or {}, frontend_named(frontend), options)
    partition(partitioned, row.name, options)
    layers: dict[tuple[object, object], Layer] = {}
    for region in partitioned.regions:
        if not isinstance(region, Region):
            raise AssertionError("without fusion every region is one layer")
        layer = Layer(
            name=f"{region.symbol}: {region.label}",
            problem=region.problem,
            epilogue=region.epilogue,
        )
        layers.setdefault((region.problem, region.epilogue), layer)
    tools = own_compilers(options.settings)
    with stored_measurements(row, tools, options.settings) as measurements:
        return advise(tuple(layers.values()), row, measurements)
