"""The kernels that a library holds: configurations that are compiled once, for any model.

A library's kernels have the plain epilogue. They cover the most frequent operand orders and
alignments, and of the configurations worth considering
    quick      one for each tile of a threadblock whose extents are powers of two from 32 on
               (about a dozen)
    standard   two for each of these tiles, and one for each other tile (about 40)
    full       all
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from boltgen.arch import Arch
from boltgen.families.cutlass2.candidates import kernel_configs
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.family import Level
from boltgen.families.mma_sync.candidates import is_power_of_two
from boltgen.families.mma_sync.traits import ConvIterator, KernelTraits, MainloopTraits
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.kernel import KernelSpec

# An SM has four schedulers; Bolt, section 3.2.2, begins with one warp for each.
_FAVOURED_WARPS = 4


# Kernels per tile of powers of two, which serve every problem; and per other tile, which gains some
# percent if its waves or rows fit better.
_PER_TILE = {Level.QUICK: (1, 0), Level.STANDARD: (2, 1)}
_LEAST_COMMON_EXTENT = 32
_LAYOUTS = {"gemm": (Layout.COLUMN, Layout.ROW), "conv2d": (Layout.COLUMN,)}


def level_configs(traits: KernelTraits, arch: Arch, level: Level) -> tuple[Cutlass2Config, ...]:
    """Return a level's configurations, smaller levels first, without swizzle and slices."""
    by_tile: dict[tuple[int, int], list[Cutlass2Config]] = defaultdict(list)
    for config in kernel_configs(traits, arch):
        by_tile[config.threadblock.m, config.threadblock.n].append(config)
    ranked = {tile: _by_preference(configs) for tile, configs in by_tile.items()}
    taken: dict[Cutlass2Config, None] = {}
    for step in Level:
        everything = max(map(len, ranked.values()), default=0)
        common, other = _PER_TILE.get(step, (everything, everything))
        for place in range(max(common, other)):
            for tile, configs in ranked.items():
                if place < (common if _is_common(tile) else other) and place < len(configs):
                    taken.setdefault(configs[place])
        if step is level:
            break
    return tuple(taken)


def _is_common(tile: tuple[int, int]) -> bool:
    return all(is_power_of_two(n) and n >= _LEAST_COMMON_EXTENT for n in tile)


def _by_preference(configs: Sequence[Cutlass2Config]) -> list[Cutlass2Config]:
    """Sort the likeliest first, then the most different: by depth of K, then number of warps."""
    stages = defaultdict(list)
    for config in configs:
        stages[config.threadblock.k].append(config.stages)
    middle = {k: statistics.median_low(sorted(found)) for k, found in stages.items()}
    depths = sorted(stages)

    def rank(config: Cutlass2Config) -> tuple[int, int, Cutlass2Config]:
        k = config.threadblock.k
        off_middle = abs(config.stages - middle[k])
        ratio = max(config.warps, _FAVOURED_WARPS) // min(config.warps, _FAVOURED_WARPS)
        return off_middle, 2 * (ratio.bit_length() - 1) + depths.index(k), config

    return sorted(configs, key=rank)


def library_specs(
    arch: Arch, level: Level, alignments: Sequence[int]
) -> dict[str, list[tuple[KernelSpec, ...]]]:
    """Return the kernels of a library by their kind, in groups that are compiled together.

    Kernels of smaller levels are separate groups, so that a larger library contains the units of a
    smaller one.
    """
    return {
        kind: [
            group
            for layout in layouts
            for alignment in alignments
            for group in _groups(kind == "conv2d", layout, alignment, arch, level)
            if group
        ]
        for kind, layouts in _LAYOUTS.items()
    }


def _groups(
    is_conv: bool, layout: Layout, alignment: int, arch: Arch, level: Level
) -> Iterator[tuple[KernelSpec, ...]]:
    compiled = MainloopTraits(
        epilogue=ElementwiseGraph(),
        in_dtype=DType.F16,
        acc_dtype=DType.F32,
        out_dtype=DType.F16,
        b_layout=layout,
        alignment_a=alignment,
        alignment_b=alignment,
        alignment_d=alignment,
        conv_iterator=ConvIterator.OPTIMIZED if is_conv else None,
    )
    taken: set[Cutlass2Config] = set()
    for step in Level:
        new = [c for c in level_configs(compiled.operands, arch, step) if c not in taken]
        taken.update(new)
        yield tuple(
            KernelSpec(family=Cutlass2Config.family, arch=arch.name, traits=compiled, config=config)
            for config in new
        )
        if step is level:
            return
