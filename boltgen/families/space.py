"""The free parameters of a family as knobs, so that a search needs to know none of them.

A knob has values, a default, random values, neighbours and an encoding. A `Space` makes
configurations from knobs and measures how far each is from legality.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a configuration breaks.

    `message` has the numbers, `reason` the cause in the hardware or CUTLASS. `slack` is the
    distance inside the rule, relative to the limit, if the rule has degrees; it is negative in a
    violation.
    """

    name: str
    message: str
    reason: str
    slack: float | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """An ordered parameter: `values` ascend, and one of them is the default.

    Its encoding is a number from 0 to 1 on a logarithmic scale, because ratios of tile extents
    matter.
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
        """Return a random value; all values are equally likely."""
        return rng.choice(self.values)

    def neighbours(self, value: int) -> tuple[int, ...]:
        """Return the next smaller and the next larger value, if any; `value` need not be listed."""
        smaller = [each for each in self.values if each < value]
        larger = [each for each in self.values if each > value]
        return (*smaller[-1:], *larger[:1])

    def encode(self, value: int) -> float:
        """Return a value's place from 0 (least) to 1 (greatest); the value need not be listed."""
        low, high = math.log2(self.values[0]), math.log2(self.values[-1])
        return (math.log2(value) - low) / (high - low) if high > low else 0.0


@dataclass(frozen=True, kw_only=True)
class Space(Generic[C]):
    """All settings of a family's knobs for one workload, legal or not.

    A point is a value for each knob by name. `config_at` maps a point to its configuration, or None
    if the knobs leave no tile; `point_of` is the inverse. `listed` returns the legal configurations
    worth considering, `broken` the rules that a configuration breaks. `launched` names the knobs
    that are launch arguments; the others are compiled. `kernels` returns every legal configuration
    of the compiled knobs, if a family has a faster way than to check each.
    """

    family: str
    knobs: tuple[Knob, ...]
    config_at: Callable[[Mapping[str, int]], C | None]
    point_of: Callable[[C], dict[str, int]]
    listed: Callable[[], Iterable[C]]
    tried: Callable[[], Iterable[C]]
    broken: Callable[[C], tuple[Violation, ...]]
    launched: frozenset[str] = frozenset()
    kernels: Callable[[], Iterable[C]] | None = None

    @cached_property
    def candidates(self) -> tuple[C, ...]:
        """The legal configurations worth considering, in a fixed order."""
        return tuple(self.listed())

    def legal_kernels(self) -> Iterable[C]:
        """Return every legal configuration with the launch arguments at their defaults."""
        if self.kernels is not None:
            return self.kernels()
        values = ((k.default,) if k.name in self.launched else k.values for k in self.knobs)
        names = [knob.name for knob in self.knobs]
        points = (dict(zip(names, each, strict=True)) for each in itertools.product(*values))
        found = dict.fromkeys(map(self.config_at, points))
        return [each for each in found if each is not None and not self.broken(each)]

    def relaunched(self, config: C) -> Iterator[C]:
        """Yield the legal configurations that differ in one launch argument by one step."""
        point = self.point_of(config)
        for knob in self.knobs:
            for value in knob.neighbours(point[knob.name]) if knob.name in self.launched else ():
                other = self.config_at(point | {knob.name: value})
                if other is not None and not self.broken(other):
                    yield other

    def explain(self) -> str:
        """Say why there is no candidate.

        Name the rules that every configuration breaks, or else the rules that most of them break.
        """
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        tried = list(self.tried())
        for config in tried:
            broken = {violation.name: violation for violation in self.broken(config)}
            counts.update(broken.keys())
            for name, violation in broken.items():
                examples.setdefault(name, f"{violation.message} ({violation.reason})")
        if always := [name for name, count in counts.items() if count == len(tried)]:
            return "; ".join(f"{name}: {examples[name]}" for name in always)
        worst = "; ".join(f"{name} x{n}: {examples[name]}" for name, n in counts.most_common(3))
        return f"rules broken most often: {worst or 'no tile holds the columns of every layer'}"

    def only(self, configs: Iterable[C]) -> Space[C]:
        """Return the space in which only these legal configurations are legal."""
        kept = tuple(dict.fromkeys(configs))
        known = frozenset(kept)

        def broken(config: C) -> tuple[Violation, ...]:
            if config in known:
                return ()
            left_out = Violation(
                name="left_out",
                message=f"it is none of the {len(kept)} that are searched",
                reason="whoever searches left it out",
            )
            return (*self.broken(config), left_out)

        return replace(
            self,
            listed=lambda: kept,
            broken=broken,
            launched=frozenset(),
            kernels=lambda: kept,
        )

    def __contains__(self, config: C) -> bool:
        point = self.point_of(config)
        listed = all(point[knob.name] in knob.values for knob in self.knobs)
        return listed and self.config_at(point) == config

    def random(self, rng: random.Random) -> C | None:
        """Return the configuration with every knob at a random value, or None."""
        return self.config_at({knob.name: knob.random(rng) for knob in self.knobs})

    def neighbours(self, config: C) -> tuple[C, ...]:
        """Return the configurations that differ in one knob by one step, legal or not."""
        point = self.point_of(config)
        found = (
            self.config_at(point | {knob.name: value})
            for knob in self.knobs
            for value in knob.neighbours(point[knob.name])
        )
        return tuple(config for config in found if config is not None)

    def encode(self, config: C) -> tuple[float, ...]:
        """Return one number from 0 to 1 for each knob, in order."""
        point = self.point_of(config)
        return tuple(
            [
                places[value] if (value := point[name]) in places else knob.encode(value)
                for name, knob, places in self._encodings
            ]
        )

    @cached_property
    def _encodings(self) -> tuple[tuple[str, Knob, dict[int, float]], ...]:
        """The knobs by name, with the places of their values."""
        return tuple(
            (knob.name, knob, {value: knob.encode(value) for value in knob.values})
            for knob in self.knobs
        )

    def penalty(self, config: C) -> float:
        """Return 0 if it is legal, else the sum of excesses; a rule without degrees counts 1."""
        return sum(1.0 if each.slack is None else -each.slack for each in self.broken(config))


AnySpace = Space[Any]


def small_space(
    family: str,
    knobs: tuple[Knob, ...],
    config_at: Callable[[Mapping[str, int]], C | None],
    point_of: Callable[[C], dict[str, int]],
    broken: Callable[[C], tuple[Violation, ...]],
    *,
    is_sensible: Callable[[C], bool] = lambda _: True,
    launched: frozenset[str] = frozenset(),
) -> Space[C]:
    """Return a space of which every point is tried; the sensible legal ones are listed."""

    def tried() -> Iterator[C]:
        names = [knob.name for knob in knobs]
        for values in itertools.product(*(knob.values for knob in knobs)):
            config = config_at(dict(zip(names, values, strict=True)))
            if config is not None:
                yield config

    return Space(
        family=family,
        knobs=knobs,
        config_at=config_at,
        point_of=point_of,
        listed=lambda: (each for each in tried() if is_sensible(each) and not broken(each)),
        tried=tried,
        broken=broken,
        launched=launched,
    )


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Extents along M, N and K, in elements."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def cutlass(self) -> str:
        """The type in CUTLASS: `cutlass::gemm::GemmShape<128, 128, 32>`."""
        return f"cutlass::gemm::GemmShape<{self.m}, {self.n}, {self.k}>"
