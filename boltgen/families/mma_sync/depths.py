"""Find the legal depths of the pipeline for many kernels at once, by the rules of `legality`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from boltgen.arch import Arch
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.legality import (
    accumulator_violations,
    map_violations,
    most_registers,
    pipeline_violations,
    registers_without_spill,
)
from boltgen.families.mma_sync.resources import shared_memory_bytes
from boltgen.families.mma_sync.traits import KernelTraits


def legal_stages(
    traits: KernelTraits,
    configs: Sequence[Tiles],
    of_all: Tiles,
    counts: Sequence[int],
    arch: Arch,
) -> list[tuple[int, ...]]:
    """Return, for each kernel, the depths of its pipeline that break no rule.

    `of_all` is the `column` of `configs`, whose tiles divide each other. The result equals that of
    `kernel_violations` but is found faster: the pipeline's rules depend only on warps and depth,
    and most other rules do not depend on the depth.
    """
    if any(accumulator_violations(traits, arch)):
        return [()] * len(configs)
    representative = {each.warps: each for each in configs}
    allowed = {
        (warps, stages)
        for warps, each in representative.items()
        for stages in counts
        if not any(pipeline_violations(traits, replace(each, stages=stages), arch))
    }
    fits = [_has_capacity(traits, replace(of_all, stages=stages), arch) for stages in counts]
    found = []
    for config, *fitting in zip(configs, *fits, strict=True):
        warps = config.warps
        deep = tuple(
            stages
            for stages, fit in zip(counts, fitting, strict=True)
            if fit and (warps, stages) in allowed
        )
        found.append(deep if deep and not any(map_violations(traits, config)) else ())
    return found


def _has_capacity(traits: KernelTraits, of_all: Tiles, arch: Arch) -> list[bool]:
    """Return, for each configuration of a column, whether shared memory and registers suffice."""
    shared: Any = shared_memory_bytes(of_all, traits.in_dtype, traits.acc_dtype)
    registers: Any = registers_without_spill(traits, of_all)
    most: Any = most_registers(of_all, arch)
    fits = (shared <= arch.shared_memory_per_cta_bytes) & (registers <= most)
    found: list[bool] = fits.tolist()
    return found
