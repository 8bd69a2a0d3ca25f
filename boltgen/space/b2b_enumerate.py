"""Enumerates the back-to-back configurations worth considering for a chain: tens of kernels.

Arrow: `space.enumerate` for chains. A layer's columns are the fewest that hold it, since every
threadblock computes all of them; what varies is the rows of a threadblock, the warps, the depth of
the pipeline, and where the intermediates reside.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import Chain, ChainLayer, describe_chain, implicit_gemm
from boltgen.space.b2b_legality import chain_violations, layer_violations
from boltgen.space.config import B2bConfig, LayerTile, Residence, Shape

_ROWS = (32, 64, 128, 256)
_COLUMNS = (16, 32, 64, 128, 256)
_WARPS = (1, 2, 4, 8)
# Two stages cannot overlap a copy with its use: only where cp.async is not to be had. More than
# four only take shared memory from other threadblocks: a later layer has few steps in all.
_STAGES = (3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """What all layers of a configuration share."""

    rows: int
    warps: int
    residence: Residence
    instruction: Shape


@lru_cache(maxsize=256)
def enumerate_chain_configs(chain: Chain, arch: Arch) -> tuple[B2bConfig, ...]:
    """All legal configurations worth considering, in a fixed order.

    Raises:
        NoLegalConfigError: there is none; the message names the rules that were broken most.
    """
    found: list[B2bConfig] = []
    broken: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for config in _candidates(chain, arch):
        violations = chain_violations(chain, config, arch)
        for violation in violations:
            broken[violation.name] += 1
            examples.setdefault(violation.name, f"{violation.message} ({violation.reason})")
        if not violations and config not in found:
            found.append(config)
    if not found:
        worst = "; ".join(f"{name} x{n}: {examples[name]}" for name, n in broken.most_common(3))
        raise NoLegalConfigError(
            f"no legal back-to-back configuration for {describe_chain(chain)} on {arch.name}; "
            f"rules broken most often: {worst or 'no tile holds all columns of every layer'}. "
            "The layers can run as kernels of their own."
        )
    return tuple(found)


def _candidates(chain: Chain, arch: Arch) -> Iterator[B2bConfig]:
    m = implicit_gemm(chain.layers[0]).m
    rows = [extent for extent in _ROWS if extent < 2 * m] or [_ROWS[0]]
    stages = _STAGES if arch.has_async_copies else (2,)
    for residence, extent, warps in itertools.product(Residence, rows, _WARPS):
        block = _Block(
            rows=extent,
            warps=warps,
            residence=residence,
            instruction=Shape(*arch.mma_shapes[0]),
        )
        for deep, count in itertools.product((True, False), stages):
            tiles = _tiles(chain, arch, block, count, deep=deep)
            if tiles is not None:
                yield _config(block, tiles)


def _config(block: _Block, tiles: tuple[LayerTile, ...]) -> B2bConfig:
    return B2bConfig(
        threadblock_m=block.rows,
        layers=tiles,
        instruction=block.instruction,
        residence=block.residence,
    )


def _tiles(
    chain: Chain, arch: Arch, block: _Block, stages: int, *, deep: bool
) -> tuple[LayerTile, ...] | None:
    """Tiles for every layer, with the fewest columns that are legal; None if a layer has none."""
    tiles: list[LayerTile] = []
    for index, layer in enumerate(chain.layers):
        depth = _depth(tiles[-1].n if tiles else None, deep=deep)
        asynchronous = arch.has_async_copies and layer.problem.alignment_b > 1
        if not index:
            asynchronous &= layer.problem.alignment_a > 1
        role = {"is_first": index == 0, "is_last": index + 1 == len(chain.layers)}
        legal = (
            tile
            for tile in _layer_tiles(layer, block, depth, stages if asynchronous else 2)
            if not any(layer_violations(layer, _config(block, (tile,)).of_layer(0), arch, **role))
        )
        best = min(legal, key=lambda tile: (tile.n, tile.warp_m + tile.warp_n), default=None)
        if best is None:
            return None
        tiles.append(best)
    return tuple(tiles)


def _layer_tiles(layer: ChainLayer, block: _Block, depth: int, stages: int) -> Iterator[LayerTile]:
    """Every split of the threadblock's rows and enough columns between its warps."""
    for n in _COLUMNS:
        if n < implicit_gemm(layer).n:
            continue
        for along_m in (count for count in _WARPS if block.warps % count == 0):
            along_n = block.warps // along_m
            if along_n > 1 and block.residence is Residence.REGISTERS:
                continue
            if block.rows % along_m == 0 and n % along_n == 0:
                yield LayerTile(
                    n=n,
                    k=depth,
                    warp_m=block.rows // along_m,
                    warp_n=n // along_n,
                    stages=stages,
                )


def _depth(columns_before: int | None, *, deep: bool) -> int:
    """The step along K; of a later layer, one that divides the columns before it."""
    deepest = 64 if deep else 32
    return deepest if columns_before is None else min(deepest, columns_before)
