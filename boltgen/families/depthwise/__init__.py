"""`depthwise`: convolutions of as many groups as channels, by multiply-adds in FP32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.boundary import input_extent
from boltgen.families.depthwise import code
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise.legality import (
    COLUMNS,
    ROWS,
    SLABS,
    THREADS,
    footprint,
    is_sensible,
    rejection,
    violations,
    workspace_bytes,
)
from boltgen.families.depthwise.model import instructions, predict
from boltgen.families.depthwise.traits import compiled_traits
from boltgen.families.depthwise_tile import depthwise_of, vector_of, vector_of_a
from boltgen.families.family import KernelFamily, always, of_layer
from boltgen.families.space import Knob, Space, small_space
from boltgen.ir.kernel import Launch
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload

_NAMES = ("threads", "rows", "columns", "slab")


def _space(workload: Workload, arch: Arch) -> Space[DepthwiseConfig]:
    """Threads of a threadblock, pixels of a thread, and channels of a threadblock."""
    layer = workload.single
    problem = depthwise_of(layer)
    return small_space(
        DepthwiseConfig.family,
        (
            Knob("threads", THREADS, 128),
            Knob("rows", ROWS, 1),
            Knob("columns", COLUMNS, 4),
            Knob("slab", SLABS, 16),
        ),
        _config_at,
        _point_of,
        lambda config: violations(layer, config, arch),
        is_sensible=lambda config: is_sensible(problem, config),
        launched=frozenset({"slab"}),
    )


def _compiled(config: DepthwiseConfig) -> DepthwiseConfig:
    return replace(config, slab=SLABS[0])


def _launch(workload: Workload, config: DepthwiseConfig) -> Launch:
    """The problem's sizes, and the channels of a threadblock."""
    problem = depthwise_of(workload.single)
    slab = config.of_slab(problem.k // vector_of(problem))
    return Launch(
        struct=code.ARGUMENTS,
        sizes=problem.sizes | {"slab": slab},
        workspace_bytes=workspace_bytes(workload.single),
    )


def _boundaries(workload: Workload, config: DepthwiseConfig, arch: Arch) -> tuple[Workload, ...]:
    """Two images of several ragged tiles, with a vector of channels more than a slab; and a single
    pixel of one vector.
    """
    layer = workload.single
    problem, traits = depthwise_of(layer), compiled_traits(layer)
    large = _sized(problem, 2, config.rows + 1, 2 * config.columns + 1, config.slab + 1)
    layers = (replace(layer, problem=each) for each in (large, _sized(problem, 1, 1, 1, 1)))
    return tuple(
        Workload(layers=(each,))
        for each in layers
        if compiled_traits(each) == traits and not violations(each, config, arch)
    )


def _sized(problem: Depthwise, images: int, rows: int, columns: int, vectors: int) -> Depthwise:
    """Return `problem` with an output of so many pixels, and so many vectors of A's channels."""
    return replace(
        problem,
        n=images,
        h=input_extent(problem, 0, rows),
        w=input_extent(problem, 1, columns),
        c=vectors * vector_of_a(problem),
    )


def _config_at(point: Mapping[str, int]) -> DepthwiseConfig:
    return DepthwiseConfig(**point)


def _point_of(config: DepthwiseConfig) -> dict[str, int]:
    return {name: getattr(config, name) for name in _NAMES}


FAMILY = KernelFamily(
    config_type=DepthwiseConfig,
    rejects=rejection,
    space=_space,
    violations=of_layer(violations),
    footprint=of_layer(footprint),
    predict=of_layer(predict),
    instructions=of_layer(instructions),
    traits=of_layer(compiled_traits),
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=always(code.HEADERS),
    view=code.view,
    compiled=_compiled,
)
