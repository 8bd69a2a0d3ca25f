"""`move`: layout transforms, with casts and added or dropped channels, as separate kernels.

A region's call runs one if TVM's tensor has another form than the region's kernel takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Footprint, KernelFamily, Prediction, always
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.problems.layout_transform.problem import ImageLayout, LayoutTransform, Move
from boltgen.problems.workload import Workload

_KIND = {
    (ImageLayout.NCHW, ImageLayout.NHWC): "NchwToNhwc",
    (ImageLayout.NHWC, ImageLayout.NCHW): "NhwcToNchw",
    (ImageLayout.NHWC, ImageLayout.NHWC): "NhwcToNhwc",
}
# Threads of a threadblock. Source: templates/include/boltgen/move.h.
_THREADS = 256
# Pixels and channels of a tile. Source: templates/include/boltgen/move_layout.h.
_TILE = 64
# Elements of the widest vector, and the channels and pixels on which a move is checked: several
# tiles.
_VECTOR, _CHANNELS, _PIXELS = 8, 64, 264


@dataclass(frozen=True, slots=True, order=True)
class MoveConfig:
    """The only configuration: there is nothing to choose."""

    family: ClassVar[str] = "move"

    @property
    def tile(self) -> str:
        """A dash: a layout transform has no tile to show."""
        return "-"

    def __str__(self) -> str:
        return "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """One layout transform: the header's class, and its element types, the kernels' type first."""

    TEMPLATE: ClassVar[str] = "move.cu.j2"

    symbol: str
    workspace_symbol: str
    kind: str
    types: str


def _rejects(workload: Workload, arch: Arch) -> str | None:
    """Return why a workload is no single layout transform, or None if it is one."""
    del arch
    is_transform = isinstance(workload.first.problem, LayoutTransform)
    if is_transform and not workload.is_fused and workload == workload.plain:
        return None
    return "it only changes layout, type and number of channels"


def _space(workload: Workload, arch: Arch) -> Space[MoveConfig]:
    """Return a space of one configuration."""
    del workload, arch
    return Space(
        family=MoveConfig.family,
        knobs=(),
        config_at=always(MoveConfig()),
        point_of=lambda _: {},
        listed=always((MoveConfig(),)),
        tried=always((MoveConfig(),)),
        broken=always(()),
    )


def _predict(
    workload: Workload,
    config: MoveConfig,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the time of the bytes at a copy's bandwidth, and of a launch."""
    del config
    c = constants or model_constants(arch)
    moved = _transform(workload).bytes_moved
    return Prediction(
        time_us=c.launch_us + c.copy_us(moved, arch), bound_by="dram", details=f"{moved} bytes"
    )


def _instructions(workload: Workload, config: MoveConfig, arch: Arch) -> Instructions:
    """Return the instructions of a transposition, tile by tile, for every layout transform."""
    del config, arch
    problem = _transform(workload)
    channels = max(problem.source_channels, problem.target_channels)
    tiles = math.ceil(problem.pixels / _TILE) * math.ceil(channels / _TILE)
    of_thread = _TILE * _TILE / _THREADS
    return Instructions(
        threadblocks=problem.images * tiles,
        steps=1,
        products=0.0,
        shared_loads=of_thread / 2,  # pairs of channels
        copies=of_thread / _VECTOR,
        copy_bytes=_VECTOR * problem.in_dtype.size_bytes,
        outputs=of_thread,
        arithmetic=0.0,
    )


def _traits(workload: Workload) -> Move:
    """Return the forms of source and target."""
    return _transform(workload).move


def _launch(workload: Workload, config: MoveConfig) -> Launch:
    """Return images, pixels and channels."""
    del config
    return Launch(struct="boltgen_move_args", sizes=_transform(workload).sizes)


def _boundaries(workload: Workload, config: MoveConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return two images of several tiles each, and one image of less than a tile.

    Vector widths depend on pixels and channels modulo 8, which stay the same.
    """
    del config, arch
    problem = _transform(workload)
    least = min(problem.source_channels, problem.target_channels)
    dropped = max(0, least - _CHANNELS) // _VECTOR * _VECTOR
    rest = problem.pixels % _VECTOR
    narrow = replace(
        problem,
        source_channels=problem.source_channels - dropped,
        target_channels=problem.target_channels - dropped,
    )
    return tuple(
        Workload.of(replace(narrow, images=images, pixels=pixels))
        for images, pixels in ((2, _PIXELS + rest), (1, rest or _VECTOR))
    )


def _stem(spec: KernelSpec) -> str:
    """Return `move_nchw_f32_to_nhwc_f16` or the like."""
    return f"move_{spec.traits}"


def _describe(spec: KernelSpec) -> Mapping[str, str]:
    """Return the layouts of source and target."""
    return {
        "Problem": f"layout transform, {spec.traits.source} to {spec.traits.target}",
        "Epilogue": "D = A",
        "Arch": spec.arch,
    }


def _view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> MoveView:
    """Return the header's class and its element types."""
    move: Move = spec.traits
    source, target = (form.dtype.conversions.moved for form in (move.source, move.target))
    kind = _KIND[move.source.layout, move.target.layout]
    types = {"NchwToNhwc": source, "NhwcToNchw": target, "NhwcToNhwc": f"{source}, {target}"}
    return MoveView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        kind=kind,
        types=f"{move.narrow.conversions.moved}, {types[kind]}",
    )


def _transform(workload: Workload) -> LayoutTransform:
    problem = workload.single.problem
    assert isinstance(problem, LayoutTransform)
    return problem


FAMILY = KernelFamily(
    config_type=MoveConfig,
    rejects=_rejects,
    space=_space,
    violations=always(()),
    # A transposition's tile is the largest.
    footprint=always(Footprint(registers=32, shared_memory_bytes=0, warps=_THREADS // 32)),
    predict=_predict,
    instructions=_instructions,
    traits=_traits,
    launch=_launch,
    boundaries=_boundaries,
    stem=_stem,
    describe=_describe,
    includes=always(("boltgen/move.h",)),
    view=_view,
)
