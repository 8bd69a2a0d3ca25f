"""Which kernels a library holds: configurations instantiated once, for every model to come.

A library's kernels have the plain epilogue. For each family they take the operand orders and
alignments that models have most, and of the configurations worth considering

    quick      one for each extent of the threadblock's tile (about a dozen)
    standard   three for each (about 40)
    full       all
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum

from boltgen.arch import Arch
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.space.config import Cutlass2Config
from boltgen.space.enumerate import kernel_configs
from boltgen.space.kernel import ConvIterator, Family, KernelSpec
from boltgen.space.legality import KernelTraits

# 16 bytes of FP16: what all but the odd first or last layer of a model has.
ALIGNMENTS = (8,)
# An SM has four schedulers, and one warp each is what Bolt, section 3.2.2, begins with.
_FAVOURED_WARPS = 4


class Level(Enum):
    """How much of the space is instantiated."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


_PER_TILE = {Level.QUICK: 1, Level.STANDARD: 3}
# Chains are not among them: their configurations follow from both products' extents.
_LAYOUTS = {Family.GEMM: (Layout.COLUMN, Layout.ROW), Family.CONV2D: (Layout.COLUMN,)}
LIBRARY_FAMILIES = tuple(_LAYOUTS)


def level_configs(traits: KernelTraits, arch: Arch, level: Level) -> tuple[Cutlass2Config, ...]:
    """The configurations of a level, the smaller levels' first; none has a swizzle or slices."""
    by_tile: dict[tuple[int, int], list[Cutlass2Config]] = defaultdict(list)
    for config in kernel_configs(traits, arch):
        by_tile[config.threadblock.m, config.threadblock.n].append(config)
    ranked = [_by_preference(configs) for configs in by_tile.values()]
    most = _PER_TILE.get(level, max(map(len, ranked), default=0))
    return tuple(
        configs[place] for place in range(most) for configs in ranked if place < len(configs)
    )


def _by_preference(configs: Sequence[Cutlass2Config]) -> list[Cutlass2Config]:
    """The likeliest first, then what differs most from it: depth of K, then number of warps."""
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
    arch: Arch,
    families: Sequence[Family],
    level: Level,
    alignments: Sequence[int] = ALIGNMENTS,
) -> list[tuple[KernelSpec, ...]]:
    """The kernels of a library, in groups that belong together: those of the smaller levels are
    groups of their own, so that a larger library holds a smaller one's.
    """
    groups = []
    for family in families:
        for layout in _LAYOUTS[family]:
            for alignment in alignments:
                traits = _traits(family, layout, alignment)
                taken: set[Cutlass2Config] = set()
                for step in Level:
                    new = [c for c in level_configs(traits, arch, step) if c not in taken]
                    taken.update(new)
                    groups.append(tuple(_spec(family, traits, c, arch) for c in new))
                    if step is level:
                        break
    return [group for group in groups if group]


def _traits(family: Family, layout: Layout, alignment: int) -> KernelTraits:
    return KernelTraits(
        is_conv=family is Family.CONV2D,
        b_layout=layout,
        acc_dtype=DType.F32,
        out_dtype=DType.F16,
        alignment_a=alignment,
        alignment_b=alignment,
        alignment_d=alignment,
    )


def _spec(family: Family, traits: KernelTraits, config: Cutlass2Config, arch: Arch) -> KernelSpec:
    return KernelSpec(
        family=family,
        arch=arch.name,
        config=config,
        epilogue=ElementwiseGraph(),
        in_dtype=DType.F16,
        acc_dtype=traits.acc_dtype,
        out_dtype=traits.out_dtype,
        b_layout=traits.b_layout,
        alignment_a=traits.alignment_a,
        alignment_b=traits.alignment_b,
        alignment_d=traits.alignment_d,
        conv_iterator=ConvIterator.OPTIMIZED if traits.is_conv else None,
    )
