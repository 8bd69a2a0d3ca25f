"""`prologue`: matmuls of A after an elementwise graph, such as a gate, a batch norm or SiLU.

The tiles and their rules come from `mma_sync`, with two stages, because A passes through registers,
where the graph is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Footprint, KernelFamily, Prediction, always, of_layer
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.boundary import boundaries
from boltgen.families.mma_sync.candidates import LAUNCHED, knobs_for, space_of
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.instructions import instructions
from boltgen.families.mma_sync.model import predict
from boltgen.families.mma_sync.resources import (
    registers_per_thread,
    shared_memory_bytes,
    split_workspace_bytes,
)
from boltgen.families.mma_sync.traffic import tiling
from boltgen.families.prologue import code
from boltgen.families.prologue.config import PrologueConfig, gemm_of, of_product, traits_of
from boltgen.families.prologue.legality import STAGES, operand_registers, rejection, violations
from boltgen.families.resources import MOST_REGISTERS
from boltgen.families.roofline import arithmetic_clocks, of_element
from boltgen.families.space import Space
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import greatest
from boltgen.ir.kernel import Launch
from boltgen.problems.problem import with_extents
from boltgen.problems.workload import Layer, Workload


def _space(workload: Workload, arch: Arch) -> Space[PrologueConfig]:
    """Return the space of the matmul alone, without the stages."""
    layer = workload.single
    product = of_product(layer)
    tiles = space_of(product, arch)

    def legal(configs: Iterable[Tiles]) -> Iterable[PrologueConfig]:
        staged = dict.fromkeys(map(_staged, configs))
        return (each for each in staged if not violations(layer, each, arch))

    def config_at(point: Mapping[str, int]) -> PrologueConfig | None:
        made = tiles.config_at({**point, "stages": STAGES})
        return None if made is None else PrologueConfig(gemm=made)

    def point_of(config: PrologueConfig) -> dict[str, int]:
        point = tiles.point_of(config.gemm)
        return {name: value for name, value in point.items() if name != "stages"}

    return Space(
        family=PrologueConfig.family,
        knobs=tuple(each for each in knobs_for(product.problem, arch) if each.name != "stages"),
        config_at=config_at,
        point_of=point_of,
        listed=lambda: legal(tiles.listed()),
        tried=lambda: map(_staged, tiles.tried()),
        broken=lambda config: violations(layer, config, arch),
        launched=LAUNCHED,
        kernels=lambda: legal(tiles.legal_kernels()),
    )


def _footprint(workload: Workload, config: PrologueConfig) -> Footprint:
    """Return the footprint of the matmul, with the registers of the prologue's operands."""
    layer, tiles = workload.single, config.gemm
    types = layer.problem.in_dtype, layer.problem.acc_dtype
    own = registers_per_thread(tiles, *types)
    return Footprint(
        registers=min(own + operand_registers(layer, config), MOST_REGISTERS),
        shared_memory_bytes=shared_memory_bytes(tiles, *types),
        warps=config.gemm.warps,
    )


def _predict(
    workload: Workload,
    config: PrologueConfig,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the time of the matmul, the prologue's arithmetic, and its operands' loads.

    Each threadblock along N computes the graph for its rows of A again.
    """
    layer = workload.single
    problem, c = gemm_of(layer), constants or model_constants(arch)
    tensors = (load for load in layer.prologue.loads if load.kind is LoadKind.TENSOR)
    read = sum(problem.m * problem.k * load.dtype.size_bytes for load in tensors)
    found = predict(problem, layer.epilogue, config.gemm, arch, c, kept_bytes=-float(read))
    tiles = tiling(problem, config.gemm)
    busy = min(tiles.blocks, arch.sm_count)
    elements = tiles.rows * config.gemm.threadblock.m * problem.k * tiles.columns // busy
    arithmetic_us = arithmetic_clocks(layer.prologue, elements, arch, c) / arch.boost_mhz
    return replace(found, time_us=found.time_us + arithmetic_us)


def _instructions(workload: Workload, config: PrologueConfig, arch: Arch) -> Instructions:
    """Return the instructions of the matmul, with the prologue's arithmetic in each step of K."""
    del arch
    layer, tile = workload.single, config.gemm.threadblock
    found = instructions(layer.problem, layer.epilogue, config.gemm)
    elements = found.steps * tile.m * tile.k / config.gemm.threads
    before = elements * of_element(layer.prologue)
    return replace(found, arithmetic=found.arithmetic + before)


def _compiled(config: PrologueConfig) -> PrologueConfig:
    """Return the configuration without swizzle and slices of K."""
    return PrologueConfig(gemm=config.gemm.kernel)


def _launch(workload: Workload, config: PrologueConfig) -> Launch:
    """Return the problem's sizes with swizzle and slices of K."""
    problem, tiles = gemm_of(workload.single), config.gemm
    return Launch(
        struct="boltgen_gemm_args",
        sizes=problem.sizes | {"split_k": tiles.split_k, "swizzle": tiles.swizzle},
        workspace_bytes=split_workspace_bytes(with_extents(problem, greatest), tiles),
    )


def _boundaries(workload: Workload, config: PrologueConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return the boundaries of the matmul alone."""
    layer = workload.single
    slices = layer.problem.slice_rows
    found = boundaries(Workload(layers=(of_product(layer),)), config.gemm, arch)
    layers = (
        Layer(
            problem=each.single.problem.in_slices(slices),
            epilogue=layer.epilogue,
            prologue=layer.prologue,
        )
        for each in found
    )
    legal = (each for each in layers if not violations(each, config, arch))
    return tuple(Workload(layers=(each,)) for each in legal) or (workload,)


def _staged(tiles: Tiles) -> PrologueConfig:
    return PrologueConfig(gemm=replace(tiles, stages=STAGES))


FAMILY = KernelFamily(
    config_type=PrologueConfig,
    rejects=rejection,
    space=_space,
    violations=of_layer(violations),
    footprint=_footprint,
    predict=_predict,
    instructions=_instructions,
    traits=of_layer(traits_of),
    compiled=_compiled,
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=always(code.HEADERS),
    view=code.view,
)
