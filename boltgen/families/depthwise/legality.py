"""Which configurations are legal for a depthwise convolution, and what they take of an SM."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise.traits import rounded_sum
from boltgen.families.depthwise_tile import Tile, depthwise_of, vector_of
from boltgen.families.family import Footprint
from boltgen.families.rejections import (
    MMA_SYNC_IN_F32,
    graph_rejection,
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
from boltgen.families.space import Violation
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import greatest
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Layer, Workload

THREADS, ROWS, COLUMNS = (64, 128, 256), (1, 2), (1, 2, 4, 8)
# Vectors of channels; the last is more than any pixel's that fits a threadblock.
SLABS = (4, 8, 16, 32, 64, 256)
_WARP = 32
_NUMBER_BYTES = 4  # of FP32, and of a count

_HEADER = "templates/include/boltgen/depthwise.h"


def rejection(workload: Workload, arch: Arch) -> str | None:
    """Return why no kernel of this family computes a workload, or None if one can."""
    if workload.is_fused:
        return f"it computes one convolution, not {len(workload.layers)} layers back to back"
    layer = workload.single
    problem = layer.problem
    if not isinstance(problem, Depthwise):
        return f"it computes depthwise convolutions, not a {type(problem).__name__}"
    if not layer.prologue.is_identity:
        return f"it multiplies A as it is, not {layer.prologue.describe()}"
    if (reason := type_rejection(problem, arch, MMA_SYNC_IN_F32)) is not None:
        return reason
    if any(store.kind is LoadKind.COLUMN for store in layer.epilogue.results):
        return f"a thread has few of a pixel's channels: {layer.epilogue.describe()}"
    return graph_rejection(layer.epilogue, problem.in_dtype) or others_rejection(layer.epilogue)


def violations(layer: Layer, config: DepthwiseConfig, arch: Arch) -> tuple[Violation, ...]:
    """Every rule that `config` breaks for a layer on `arch`; empty if it is legal.

    Values that no kernel is made with are reported alone: nothing else can be said then.
    """
    structural = tuple(_value_violations(config))
    if structural:
        return structural
    taken = footprint(layer, config)
    return (
        *_extent_violations(depthwise_of(layer), config),
        *capacity_violations(
            arch,
            shared_bytes=taken.shared_memory_bytes,
            registers=taken.registers,
            threads=config.threads,
            spilt="sums",
        ),
    )


def _value_violations(config: DepthwiseConfig) -> Iterator[Violation]:
    known = {"threads": THREADS, "rows": ROWS, "columns": COLUMNS, "slab": SLABS}
    reason = f"the code of a thread is unrolled for its pixels; {_HEADER}"
    yield from value_violations(config, known, name="values", reason=reason)


def _extent_violations(problem: Depthwise, config: DepthwiseConfig) -> Iterator[Violation]:
    counted = {
        "threads for a slab": blocks_of_slab(problem, config) * config.threads,
        "elements of a row of pixels": problem.w * problem.c,
        "elements of the filters": problem.r * problem.s * problem.k,
    }
    beyond = {name: (count, INT32_MAX) for name, count in counted.items()}
    yield from overflow_violations(beyond, f"they are counted in 32 bits; {_HEADER}")


def tiles(problem: Depthwise, config: DepthwiseConfig) -> int:
    """Tiles of all images."""
    rows, columns = math.ceil(problem.p / config.rows), math.ceil(problem.q / config.columns)
    return problem.n * rows * columns


def blocks_of_slab(problem: Depthwise, config: DepthwiseConfig) -> int:
    """Threadblocks that have the same channels."""
    vectors = config.of_slab(problem.k // vector_of(problem))
    return math.ceil(tiles(problem, config) * vectors / config.threads)


def blocks(problem: Depthwise, config: DepthwiseConfig) -> int:
    """Threadblocks of a launch."""
    vectors = problem.k // vector_of(problem)
    return blocks_of_slab(problem, config) * math.ceil(vectors / config.of_slab(vectors))


def workspace_bytes(layer: Layer) -> int:
    """Return the bytes of a rounded sum: FP32 numbers, and a count for each slab of channels.

    A kernel's own query returns the same. A symbolic size counts as the greatest of its range.
    """
    if rounded_sum(layer) is None:
        return 0
    problem = depthwise_of(layer)
    images: int = greatest(problem.n)
    return _NUMBER_BYTES * (images * problem.k + problem.k // vector_of(problem))


def tile_of(problem: Depthwise, config: DepthwiseConfig) -> Tile:
    """Return the tile of a thread."""
    return Tile(problem, config.rows, config.columns)


def footprint(layer: Layer, config: DepthwiseConfig) -> Footprint:
    """No shared memory; registers for sums, for a row of pixels and one of the filter."""
    problem = depthwise_of(layer)
    tile = tile_of(problem, config)
    operands = vector_of(problem) * (len(layer.loads) + len(layer.further))
    return Footprint(
        registers=tile.sums + max(tile.row_registers, operands) + BOOKKEEPING_REGISTERS,
        shared_memory_bytes=0,
        warps=config.threads // _WARP,
    )


def is_sensible(problem: Depthwise, config: DepthwiseConfig) -> bool:
    """Whether no tile is mostly outside the output, and no smaller slab has all channels."""
    vectors = problem.k // vector_of(problem)
    is_least = config.slab == SLABS[0] or vectors > SLABS[SLABS.index(config.slab) - 1]
    rows_fit = config.rows == 1 or config.rows < 2 * problem.p
    columns_fit = config.columns == 1 or config.columns < 2 * problem.q
    return is_least and rows_fit and columns_fit
