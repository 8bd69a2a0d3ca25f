"""The free parameters of a family as knobs, so that a search need not know which it turns.

A knob knows its values, default, random value, neighbours and encoding; a `Space` makes
configurations of them and says how far outside legality each one is.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a configuration breaks.

    `message` has the numbers, `reason` the hardware's or CUTLASS's cause. `slack` is how far
    inside the rule the configuration is, relative to the limit, where that is a matter of degree:
    negative in a violation.
    """

    name: str
    message: str
    reason: str
    slack: float | None = None


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
        """The next smaller and larger of its values, where there is one; `value` may be another."""
        smaller = [each for each in self.values if each < value]
        larger = [each for each in self.values if each > value]
        return (*smaller[-1:], *larger[:1])

    def encode(self, value: int) -> float:
        """The place of a value, listed or not, between the least (0) and the greatest (1)."""
        low, high = math.log2(self.values[0]), math.log2(self.values[-1])
        return (math.log2(value) - low) / (high - low) if high > low else 0.0

    def decode(self, place: float) -> int:
        """The value nearest to a place, which may lie outside 0 to 1."""
        return min(self.values, key=lambda value: (abs(self.encode(value) - place), value))


@dataclass(frozen=True, kw_only=True)
class Space(Generic[C]):
    """All settings of a family's knobs for one workload, legal or not.

    A point is a value for each knob by its name. `config_at` gives its configuration, None if the
    knobs leave no tile; `point_of` the point of a configuration. `listed` gives the legal
    configurations worth considering, `broken` the rules that a configuration breaks. `launched`
    names the knobs that are arguments of the launch; the others are compiled. `kernels` gives every
    legal configuration of the compiled knobs, if a family has a faster way than to ask about each.
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
        """Every legal configuration with the arguments of the launch at their defaults."""
        if self.kernels is not None:
            return self.kernels()
        values = ((k.default,) if k.name in self.launched else k.values for k in self.knobs)
        names = [knob.name for knob in self.knobs]
        points = (dict(zip(names, each, strict=True)) for each in itertools.product(*values))
        found = dict.fromkeys(map(self.config_at, points))
        return [each for each in found if each is not None and not self.broken(each)]

    def relaunched(self, config: C) -> Iterator[C]:
        """The legal configurations that differ in one argument of the launch, by one step."""
        point = self.point_of(config)
        for knob in self.knobs:
            for value in knob.neighbours(point[knob.name]) if knob.name in self.launched else ():
                other = self.config_at(point | {knob.name: value})
                if other is not None and not self.broken(other):
                    yield other

    def explain(self) -> str:
        """Why there is no candidate: the rules that all configurations break, or else those that
        most of them break.
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

    def pinned(self, **values: int) -> Space[C]:
        """The space with the named knobs held at these values."""
        held = {name: Knob(name, (value,), value) for name, value in values.items()}
        knobs = tuple(held.get(knob.name, knob) for knob in self.knobs)
        return replace(self, knobs=knobs, kernels=None)

    def only(self, configs: Iterable[C]) -> Space[C]:
        """The space in which these legal configurations alone are legal."""
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

    @property
    def size(self) -> int:
        """The number of settings."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def __contains__(self, config: C) -> bool:
        point = self.point_of(config)
        listed = all(point[knob.name] in knob.values for knob in self.knobs)
        return listed and self.config_at(point) == config

    def default(self) -> C | None:
        """Every knob at its default."""
        return self.config_at({knob.name: knob.default for knob in self.knobs})

    def random(self, rng: random.Random) -> C | None:
        """Every knob at a random value."""
        return self.config_at({knob.name: knob.random(rng) for knob in self.knobs})

    def neighbours(self, config: C) -> tuple[C, ...]:
        """The configurations that differ in one knob by one step."""
        point = self.point_of(config)
        found = (
            self.config_at(point | {knob.name: value})
            for knob in self.knobs
            for value in knob.neighbours(point[knob.name])
        )
        return tuple(config for config in found if config is not None)

    def encode(self, config: C) -> tuple[float, ...]:
        """One number for each knob, in their order."""
        point = self.point_of(config)
        return tuple(
            [
                places[value] if (value := point[name]) in places else knob.encode(value)
                for name, knob, places in self._encodings
            ]
        )

    @cached_property
    def _encodings(self) -> tuple[tuple[str, Knob, dict[int, float]], ...]:
        """Each knob by its name, with the places of its values."""
        return tuple(
            (knob.name, knob, {value: knob.encode(value) for value in knob.values})
            for knob in self.knobs
        )

    def decode(self, places: Sequence[float]) -> C | None:
        """The configuration nearest to an encoding; legal or not."""
        pairs = zip(self.knobs, places, strict=True)
        return self.config_at({knob.name: knob.decode(place) for knob, place in pairs})

    def penalty(self, config: C) -> float:
        """0 where it is legal, else how far it is from that: 1 for a rule without degrees."""
        return sum(1.0 if each.slack is None else -each.slack for each in self.broken(config))


AnySpace = Space[Any]


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
