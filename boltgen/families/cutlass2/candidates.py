"""The tiles of `mma_sync.candidates` as configurations of this family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boltgen.arch import Arch
from boltgen.families.cutlass2.config import Cutlass2Config, config_of
from boltgen.families.mma_sync import candidates
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traits import KernelTraits
from boltgen.families.space import Space
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer


def enumerate_configs(problem: Problem, arch: Arch) -> tuple[Cutlass2Config, ...]:
    """Return all legal configurations worth considering, in a fixed order."""
    return _configs(candidates.enumerate_configs(problem, arch))


def kernel_configs(traits: KernelTraits, arch: Arch) -> tuple[Cutlass2Config, ...]:
    """Return the configurations of kernels with these traits, without swizzle and split-K."""
    return _configs(candidates.kernel_configs(traits, arch))


def space_of(layer: Layer, arch: Arch) -> Space[Cutlass2Config]:
    """Return the whole space of a layer."""
    tiles = candidates.space_of(layer, arch)

    def config_at(point: Mapping[str, int]) -> Cutlass2Config | None:
        found = tiles.config_at(point)
        return None if found is None else config_of(found)

    return Space(
        family=Cutlass2Config.family,
        knobs=tiles.knobs,
        config_at=config_at,
        point_of=tiles.point_of,
        listed=lambda: _configs(tiles.listed()),
        tried=lambda: _configs(tiles.tried()),
        broken=tiles.broken,
        launched=tiles.launched,
        kernels=lambda: _configs(tiles.legal_kernels()),
    )


def _configs(tiles: Iterable[Tiles]) -> tuple[Cutlass2Config, ...]:
    return tuple(map(config_of, tiles))
