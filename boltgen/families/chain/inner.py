"""A matmul whose A is on chip, by mma.sync: its rules, shared memory and registers.

Source: templates/include/boltgen/b2b_layer.h, InnerLayer.
"""

from __future__ import annotations

from collections.abc import Iterator

from boltgen.arch import Arch
from boltgen.families.chain.traffic import swizzled_tile_bytes
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.space import Violation
from boltgen.ir.dtypes import Layout
from boltgen.problems.workload import Layer

_DEPTHS = (16, 32, 64)
_HEADER = "templates/include/boltgen/b2b_layer.h"
_REGISTER_BYTES = 4
_WARP = 32


def inner_violations(layer: Layer, tiles: Tiles, arch: Arch) -> Iterator[Violation]:
    """Yield the violations of depth and stages."""
    depth, stages = tiles.threadblock.k, tiles.stages
    if depth not in _DEPTHS:
        yield Violation(
            name="inner_threadblock_k",
            message=f"a later layer's threadblock k={depth} is not 16, 32 or 64",
            reason="the permuted tile of B has rows of 32, 64 or 128 bytes, whole steps of "
            f"mma.m16n8k16; {_HEADER}",
        )
    narrow = layer.problem.alignment_b == 1
    if not arch.has_async_copies or narrow:
        if stages != 2:
            why = f"B of vectors of {layer.problem.alignment_b}" if narrow else arch.name
            yield Violation(
                name="inner_stages",
                message=f"{stages} stages in a later layer on {arch.name} with {why}",
                reason="without cp.async, which copies 4 bytes or more from sm_80 on, B passes "
                f"through registers in two stages; {_HEADER}",
            )
    elif not 2 <= stages <= arch.max_stages:
        yield Violation(
            name="inner_stages",
            message=f"{stages} stages in a later layer on {arch.name}, which takes 2 to "
            f"{arch.max_stages}",
            reason="one stage cannot be filled while it is read; more than five only take memory",
        )


def inner_tiles_bytes(layer: Layer, tiles: Tiles) -> int:
    """Return the bytes of the tiles of B, of all stages."""
    tile = tiles.threadblock
    by_rows = layer.problem.gemm.b_layout is Layout.ROW
    rows, columns = (tile.k, tile.n) if by_rows else (tile.n, tile.k)
    return tiles.stages * swizzled_tile_bytes(rows, columns, layer.problem.in_dtype)


def inner_accumulators(layer: Layer, tiles: Tiles) -> int:
    """Return the registers of a thread for the sums."""
    size = layer.problem.acc_dtype.size_bytes
    return tiles.warp.m * tiles.warp.n * size // (_WARP * _REGISTER_BYTES)


def inner_fragments(layer: Layer, tiles: Tiles) -> int:
    """Return the registers of a thread for operands, and for B on its way to shared memory."""
    size, tile = layer.problem.in_dtype.size_bytes, tiles.threadblock
    # mma.m16n8k16 multiplies sixteen columns of A with sixteen rows of B.
    fragments = (tiles.warp.m + tiles.warp.n) * 16 * size // (_WARP * _REGISTER_BYTES)
    staged = tile.n * tile.k * size // (_REGISTER_BYTES * tiles.threads)
    return fragments + (staged if tiles.stages == 2 else 0)
