"""`grouped`: grouped matmuls, each group of rows with its own matrix, as in mixtures of experts.

The tiles and their rules come from `mma_sync`, because the kernels have its mainloop and epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.families.boundary import first_beyond
from boltgen.families.constants import ModelConstants, model_constants
from boltgen.families.family import Footprint, KernelFamily, Prediction, of_layer
from boltgen.families.grouped import code
from boltgen.families.grouped.config import (
    GroupedConfig,
    even,
    grouped_of,
    repeated_bytes,
    rows_bytes,
    traits_of,
)
from boltgen.families.grouped.legality import rejection, violations
from boltgen.families.instructions import Instructions
from boltgen.families.mma_sync.candidates import enumerate_configs, knobs_for, space_of
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.instructions import instructions
from boltgen.families.mma_sync.model import predict, times_us
from boltgen.families.mma_sync.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.space import Space
from boltgen.ir.kernel import Launch
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.workload import Layer, Workload

# The number of groups on which a kernel is checked: more than a warp searches at once.
_GROUPS = 34


def _space(workload: Workload, arch: Arch) -> Space[GroupedConfig]:
    """Return the space of the batch with groups of equal size: tiles, warps, stages and swizzle."""
    layer = workload.single
    batch = Layer(problem=even(grouped_of(layer)), epilogue=layer.epilogue)
    tiles = space_of(batch, arch)

    def config_at(point: Mapping[str, int]) -> GroupedConfig | None:
        return _config(tiles.config_at({**point, "split_k": 1}))

    return Space(
        family=GroupedConfig.family,
        knobs=tuple(each for each in knobs_for(batch.problem, arch) if each.name != "split_k"),
        config_at=config_at,
        point_of=lambda config: tiles.point_of(config.gemm),
        listed=lambda: (
            GroupedConfig(gemm=each)
            for each in enumerate_configs(batch.problem, arch)
            if not violations(layer, GroupedConfig(gemm=each), arch)
        ),
        tried=lambda: (GroupedConfig(gemm=each) for each in tiles.tried()),
        broken=lambda config: violations(layer, config, arch),
        launched=frozenset({"swizzle"}),
        kernels=lambda: (
            GroupedConfig(gemm=each)
            for each in tiles.legal_kernels()
            if not violations(layer, GroupedConfig(gemm=each), arch)
        ),
    )


def _footprint(workload: Workload, config: GroupedConfig) -> Footprint:
    """Return the footprint of a group's matmul, with the indices of a tile's gathered rows."""
    problem = grouped_of(workload.single)
    types, rows = (problem.in_dtype, problem.acc_dtype), rows_bytes(problem, config)
    return Footprint(
        registers=registers_per_thread(config.gemm, *types),
        shared_memory_bytes=shared_memory_bytes(config.gemm, *types) + rows,
        warps=config.gemm.warps,
    )


def _predict(
    workload: Workload,
    config: GroupedConfig,
    arch: Arch,
    constants: ModelConstants | None = None,
) -> Prediction:
    """Return the time of the batch with groups of equal size.

    A row that is gathered several times is read from DRAM once, if L2 keeps it.
    """
    layer = workload.single
    problem = grouped_of(layer)
    c = constants or model_constants(arch)
    kept = _kept_bytes(problem, arch, c)
    return predict(even(problem), layer.epilogue, config.gemm, arch, c, kept_bytes=kept)


def _times_us(
    workload: Workload,
    configs: Sequence[GroupedConfig],
    arch: Arch,
    constants: ModelConstants | None = None,
) -> NDArray[np.float64]:
    """Return the times of `_predict` for many configurations."""
    layer = workload.single
    problem = grouped_of(layer)
    c = constants or model_constants(arch)
    return times_us(
        even(problem),
        layer.epilogue,
        [config.gemm for config in configs],
        arch,
        c,
        kept_bytes=_kept_bytes(problem, arch, c),
    )


def _instructions(workload: Workload, config: GroupedConfig, arch: Arch) -> Instructions:
    """Return the instructions of the batch with groups of equal size."""
    del arch
    layer = workload.single
    return instructions(even(grouped_of(layer)), layer.epilogue, config.gemm)


def _compiled(config: GroupedConfig) -> GroupedConfig:
    """Return the configuration without its swizzle."""
    return GroupedConfig(gemm=config.gemm.kernel)


def _launch(workload: Workload, config: GroupedConfig) -> Launch:
    """Return the problem's sizes and the swizzle."""
    problem = grouped_of(workload.single)
    sizes = problem.sizes | {"swizzle": config.gemm.swizzle}
    if problem.a_rows is not None:
        sizes["a_rows"] = problem.a_rows
    return Launch(struct="boltgen_grouped_gemm_args", sizes=sizes)


def _boundaries(workload: Workload, config: GroupedConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return a large workload and a small one.

    The large one has groups of several ragged tiles and an empty group; the small one has more
    groups than rows, and less than a tile of everything. Rows are gathered from fewer rows in one,
    and from more in the other.
    """
    layer = workload.single
    problem, tile = grouped_of(layer), config.gemm.threadblock
    traits = traits_of(layer)

    def fits(sized: GroupedGemm) -> bool:
        return traits_of(replace(layer, problem=sized)) == traits

    deep = (config.gemm.stages + 1) * tile.k
    large = _of_rows(replace(problem, groups=3, m=4 * tile.m + 5), tile.m + 3)
    large = first_beyond(large, deep, _with_depth, fits)
    large = first_beyond(large, tile.n * config.gemm.swizzle, _with_columns, fits)
    small = _of_rows(replace(problem, groups=_GROUPS, m=_GROUPS - 5), 2 * _GROUPS)
    small = first_beyond(small, 0, _with_depth, fits)
    small = first_beyond(small, 0, _with_columns, fits)
    sized = (replace(layer, problem=each) for each in (large, small))
    legal = (each for each in sized if not violations(each, config, arch))
    found = tuple(Workload(layers=(each,)) for each in legal)
    return tuple(dict.fromkeys(found)) or (workload,)


def _config(tiles: Tiles | None) -> GroupedConfig | None:
    return None if tiles is None else GroupedConfig(gemm=tiles)


def _of_rows(problem: GroupedGemm, rows: int) -> GroupedGemm:
    return problem if problem.a_rows is None else replace(problem, a_rows=rows)


def _with_depth(problem: GroupedGemm, depth: int) -> GroupedGemm:
    return problem.resized(depth, problem.n)


def _with_columns(problem: GroupedGemm, columns: int) -> GroupedGemm:
    return problem.resized(problem.k, columns)


def _kept_bytes(problem: GroupedGemm, arch: Arch, c: ModelConstants) -> float:
    """Return the bytes of A that L2 keeps for a problem that gathers rows several times."""
    return repeated_bytes(problem, c.l2_kept_fraction * arch.l2_bytes)


FAMILY = KernelFamily(
    config_type=GroupedConfig,
    rejects=rejection,
    space=_space,
    violations=of_layer(violations),
    footprint=_footprint,
    predict=_predict,
    times_us=_times_us,
    instructions=_instructions,
    traits=of_layer(traits_of),
    compiled=_compiled,
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=code.includes,
    view=code.view,
)
