"""The free parameters of a configuration as knobs, so that a search need not know which it turns.

A knob knows its values, default, random value, neighbours and encoding; a `ConfigSpace` makes
configurations of them and says how far outside legality each one is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from boltgen.arch import Arch
from boltgen.ir.problem import BatchedGemm, Problem
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.space.legality import KernelTraits, Violation, kernel_traits, violations

# Those between the powers of two fill a last wave, or a register file, that these leave half empty.
TILE_EXTENTS = (16, 32, 64, 96, 128, 160, 192, 256)
TILE_DEPTHS = (32, 64)
WARP_M = (16, 32, 48, 64, 80, 96)
WARP_N = (16, 32, 48, 64, 80, 96, 128)
SWIZZLES = (1, 2, 4, 8)
SLICES = (1, 2, 3, 4, 6, 8, 12, 16)


def stage_counts(traits: KernelTraits, arch: Arch) -> tuple[int, ...]:
    """Depths of the software pipeline that are worth having."""
    # Two stages cannot overlap a copy with its use: only where cp.async is not to be had.
    two_bytes_wide = min(traits.alignment_a, traits.alignment_b) == 1
    if two_bytes_wide or arch.max_stages == 2:
        return (2,)
    return tuple(range(max(3, arch.min_stages), arch.max_stages + 1))


@dataclass(frozen=True, slots=True)
class Knob:
    """An ordered parameter: `values` ascend, and one of them is the default.

    Its encoding is one number in 0 to 1, on a logarithmic scale: tile extents act by their ratios.
    """

    name: str
    values: tuple[int, ...]
    default: int

    def __post_init__(self) -> None:
        if self.default not in self.values or list(self.values) != sorted(set(self.values)):
            raise ValueError(
                f"knob {self.name}: {self.default} is not one of the ascending {self.values}"
            )

    def random(self, rng: random.Random) -> int:
        """Any value, each as likely as the others."""
        return rng.choice(self.values)

    def neighbours(self, value: int) -> tuple[int, ...]:
        """The next smaller and larger value, where there is one."""
        index = self.values.index(value)
        return self.values[max(index - 1, 0) : index] + self.values[index + 1 : index + 2]

    def encode(self, value: int) -> float:
        """The place of a value, listed or not, between the least (0) and the greatest (1)."""
        low, high = math.log2(self.values[0]), math.log2(self.values[-1])
        return (math.log2(value) - low) / (high - low) if high > low else 0.0

    def decode(self, place: float) -> int:
        """The value nearest to a place, which may lie outside 0 to 1."""
        return min(self.values, key=lambda value: (abs(self.encode(value) - place), value))


def knobs_for(problem: Problem, arch: Arch) -> tuple[Knob, ...]:
    """The knobs of the 2.x kernels for a problem, in a fixed order."""
    stages = stage_counts(kernel_traits(problem), arch)
    slices = SLICES[:1] if isinstance(problem, BatchedGemm) else SLICES
    return (
        Knob("threadblock_m", TILE_EXTENTS, 128),
        Knob("threadblock_n", TILE_EXTENTS, 128),
        Knob("threadblock_k", TILE_DEPTHS, 32),
        Knob("warp_m", WARP_M, 64),
        Knob("warp_n", WARP_N, 64),
        Knob("stages", stages, stages[0]),
        Knob("swizzle", SWIZZLES, 1),
        Knob("split_k", slices, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSpace:
    """All settings of a problem's knobs, legal or not.

    A point is a value for each knob by its name; points and configurations say the same.
    """

    problem: Problem
    arch: Arch
    knobs: tuple[Knob, ...]

    @classmethod
    def of(cls, problem: Problem, arch: Arch) -> ConfigSpace:
        """The whole space of a problem."""
        return cls(problem=problem, arch=arch, knobs=knobs_for(problem, arch))

    def pinned(self, **values: int) -> ConfigSpace:
        """The space with the named knobs held at these values."""
        held = {name: Knob(name, (value,), value) for name, value in values.items()}
        return replace(self, knobs=tuple(held.get(knob.name, knob) for knob in self.knobs))

    @property
    def size(self) -> int:
        """How many settings there are."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def config(self, point: Mapping[str, int]) -> Cutlass2Config:
        """The configuration at a point."""
        depth = point["threadblock_k"]
        return Cutlass2Config(
            threadblock=Shape(point["threadblock_m"], point["threadblock_n"], depth),
            warp=Shape(point["warp_m"], point["warp_n"], depth),
            instruction=Shape(*self.arch.mma_shapes[0]),
            stages=point["stages"],
            swizzle=point["swizzle"],
            split_k=point["split_k"],
        )

    def point(self, config: Cutlass2Config) -> dict[str, int]:
        """The point at which a configuration lies."""
        return {
            "threadblock_m": config.threadblock.m,
            "threadblock_n": config.threadblock.n,
            "threadblock_k": config.threadblock.k,
            "warp_m": config.warp.m,
            "warp_n": config.warp.n,
            "stages": config.stages,
            "swizzle": config.swizzle,
            "split_k": config.split_k,
        }

    def __contains__(self, config: Cutlass2Config) -> bool:
        point = self.point(config)
        listed = all(point[knob.name] in knob.values for knob in self.knobs)
        return listed and self.config(point) == config

    def default(self) -> Cutlass2Config:
        """Every knob at its default."""
        return self.config({knob.name: knob.default for knob in self.knobs})

    def random(self, rng: random.Random) -> Cutlass2Config:
        """Every knob at a random value."""
        return self.config({knob.name: knob.random(rng) for knob in self.knobs})

    def neighbours(self, config: Cutlass2Config) -> tuple[Cutlass2Config, ...]:
        """The configurations that differ in one knob by one step."""
        point = self.point(config)
        return tuple(
            self.config(point | {knob.name: value})
            for knob in self.knobs
            for value in knob.neighbours(point[knob.name])
        )

    def encode(self, config: Cutlass2Config) -> tuple[float, ...]:
        """One number for each knob, in their order."""
        point = self.point(config)
        return tuple(knob.encode(point[knob.name]) for knob in self.knobs)

    def decode(self, places: Sequence[float]) -> Cutlass2Config:
        """The configuration nearest to an encoding; legal or not."""
        pairs = zip(self.knobs, places, strict=True)
        return self.config({knob.name: knob.decode(place) for knob, place in pairs})

    def violations(self, config: Cutlass2Config) -> tuple[Violation, ...]:
        """The rules that a configuration breaks."""
        return violations(self.problem, config, self.arch)

    def penalty(self, config: Cutlass2Config) -> float:
        """0 where it is legal, else how far it is from that: 1 for a rule without degrees."""
        broken = self.violations(config)
        return sum(1.0 if each.slack is None else -each.slack for each in broken)
