"""Which configurations are legal for a depthwise separable convolution, and their resources."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.chain.inner import (
    inner_accumulators,
    inner_fragments,
    inner_tiles_bytes,
    inner_violations,
)
from boltgen.families.chain.traffic import swizzled_tile_bytes
from boltgen.families.depthwise_tile import Tile, depthwise_of, vector_of
from boltgen.families.family import Footprint
from boltgen.families.mma_sync.legality import (
    accumulator_violations,
    epilogue_violations,
    result_violations,
    tile_violations,
)
from boltgen.families.mma_sync.resources import epilogue_bytes
from boltgen.families.mma_sync.traits import kernel_traits
from boltgen.families.rejections import (
    MMA_SYNC,
    MMA_SYNC_IN_F32,
    graph_rejection,
    one_result_rejection,
    operand_rejection,
    others_rejection,
    type_rejection,
)
from boltgen.families.resources import (
    BOOKKEEPING_REGISTERS,
    INT32_MAX,
    capacity_violations,
    overflow_violations,
    value_violations,
)
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.space import Violation
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload

COLUMNS = (1, 2, 4, 8)
# A threadblock's last rows may lie beyond M; their indices have 32 bits.
_MOST_ROWS = INT32_MAX - 256
# The channels of a step are in two tiles by turns.
_STEPS_AT_ONCE = 2
_HEADER = "templates/include/boltgen/separable.h"


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    first, last = workload.first.problem, workload.last.problem
    if not workload.is_fused:
        return "it computes a depthwise convolution and a 1x1 one, not one layer"
    if not isinstance(first, Depthwise):
        return f"it begins with a depthwise convolution, not a {type(first).__name__}"
    if first.with_input:
        return "the depthwise convolution's input goes on beside its result"
    if len(workload.layers) > 2:
        following = len(workload.layers) - 1
        return f"it computes one 1x1 convolution after the depthwise one, not {following}"
    if not all(layer.prologue.is_identity for layer in workload.layers):
        return "what a layer multiplies cannot be changed by a prologue"
    return (
        type_rejection(first, arch, MMA_SYNC_IN_F32)
        or operand_rejection(last, arch, MMA_SYNC)
        or one_result_rejection(workload.first.epilogue)
        or graph_rejection(workload.last.epilogue)
        or others_rejection(workload.last.epilogue)
    )


def violations(workload: Workload, config: SeparableConfig, arch: Arch) -> tuple[Violation, ...]:
    """Return every rule that `config` breaks for `workload` on `arch`; empty if it is legal.

    Tiles that do not divide are reported alone, because other rules need them to.
    """
    layer, tiles = workload.last, config.tiles
    structural = (
        *_value_violations(workload, config),
        *tile_violations(tiles, arch, layer.problem.in_dtype),
    )
    if structural:
        return structural
    taken = footprint(workload, config)
    traits = kernel_traits(layer.problem)
    return (
        *accumulator_violations(traits, arch),
        *inner_violations(layer, tiles, arch),
        *epilogue_violations(traits, tiles),
        *result_violations(layer.epilogue, tiles),
        *capacity_violations(
            arch,
            shared_bytes=taken.shared_memory_bytes,
            registers=taken.registers,
            threads=config.threads,
            spilt="accumulators, and sums of the depthwise convolution,",
        ),
        *overflow_violations(_counted(workload, config), f"they are counted in 32 bits; {_HEADER}"),
    )


def _value_violations(workload: Workload, config: SeparableConfig) -> Iterator[Violation]:
    if config.columns not in COLUMNS:
        reason = f"the code of a thread is unrolled for its pixels; {_HEADER}"
        yield from value_violations(config, {"columns": COLUMNS}, name="values", reason=reason)
    elif config.threadblock.m % config.columns or config.threadblock.k % 8:
        yield Violation(
            name="whole_tiles",
            message=f"{config.columns} pixels of a thread do not divide {config.threadblock.m}, or "
            f"a step of {config.threadblock.k} channels has no whole vectors",
            reason=f"a thread writes whole vectors of its pixels; {_HEADER}",
        )


def _counted(workload: Workload, config: SeparableConfig) -> dict[str, tuple[int, int]]:
    """Return what is counted in 32 bits, and the most of it."""
    first = depthwise_of(workload.first)
    return {
        "pixels of the output": (workload.last.problem.gemm.m, _MOST_ROWS),
        "threadblocks": (blocks(workload, config), INT32_MAX),
        "elements of a row of pixels": (first.w * first.c, INT32_MAX),
        "elements of the filters": (first.r * first.s * first.k, INT32_MAX),
    }


def column_tiles(workload: Workload, config: SeparableConfig) -> int:
    """Tiles along D's channels; each computes the channels between the layers anew."""
    return math.ceil(workload.last.problem.gemm.n / config.threadblock.n)


def blocks(workload: Workload, config: SeparableConfig) -> int:
    """Threadblocks of a launch."""
    rows = math.ceil(workload.last.problem.gemm.m / config.threadblock.m)
    return rows * column_tiles(workload, config)


def tile_of(workload: Workload, config: SeparableConfig) -> Tile:
    """Return the tile of the depthwise convolution that a thread computes at once."""
    return Tile(depthwise_of(workload.first), 1, config.columns)


def tasks(workload: Workload, config: SeparableConfig) -> int:
    """Return how many such tiles a threadblock computes for a step."""
    vectors = config.threadblock.k // vector_of(depthwise_of(workload.first))
    return config.threadblock.m // config.columns * vectors


def footprint(workload: Workload, config: SeparableConfig) -> Footprint:
    """Two steps' channels and the stages of B in shared memory; sums of both layers in registers.

    Source: templates/include/boltgen/separable.h, SharedStorage.
    """
    layer, tiles, tile = workload.last, config.tiles, tile_of(workload, config)
    block, in_dtype = config.threadblock, layer.problem.in_dtype
    steps_bytes = _STEPS_AT_ONCE * swizzled_tile_bytes(block.m, block.k, in_dtype)
    operands = vector_of(tile.problem) * len(workload.first.loads)
    of_depthwise = tile.sums + tile.result_registers + max(tile.row_registers, operands)
    held = inner_accumulators(layer, tiles) + max(of_depthwise, inner_fragments(layer, tiles))
    return Footprint(
        registers=held + BOOKKEEPING_REGISTERS,
        shared_memory_bytes=max(
            inner_tiles_bytes(layer, tiles) + steps_bytes,
            epilogue_bytes(tiles, layer.problem.acc_dtype),
        ),
        warps=tiles.warps,
    )
