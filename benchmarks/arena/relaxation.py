"""A family's knobs as real numbers: a smooth time and a smooth penalty that interpolate exact
values.

    f(x) = mean + sum w_i exp(-|x - c_i|^2 / 2 h^2),   f(c_i) = f_i

Any cost model of any family becomes differentiable so, ceilings and maxima with it: at its anchors,
which are settings of the knobs, the smooth function is the exact one. Felix rewrites the formulas
of one model instead. Source: Powell, Radial basis functions for multivariable interpolation, 1987.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.families.space import AnySpace

# A step of a knob of eight values is a seventh of its scale. A choice.
_WIDTH = 0.25
# Keeps the system of equations solvable; the smooth function's error at its anchors.
_JITTER = 1e-6
# Anchors: the likeliest, others evenly through the rest, and random settings, most of them illegal.
_LIKELIEST, _OTHERS, _ANY = 32, 32, 32
# Settings near descents that legality is newly asked about each time. A choice.
_ASKED = 16

Array = NDArray[np.float64]


class Relaxation:
    """The smooth functions of one family's space; `fit` before asking for slopes."""

    def __init__(self, space: AnySpace, likeliest: Sequence[Config], rng: random.Random) -> None:
        self._space = space
        rest = likeliest[_LIKELIEST:]
        # The anchors that are configurations of the space; the others are not legal.
        self.legal = [*likeliest[:_LIKELIEST], *rest[:: max(1, len(rest) // _OTHERS)]]
        drawn = dict.fromkeys(space.random(rng) for _ in range(_ANY))
        penalties = {each: space.penalty(each) for each in drawn if each is not None}
        illegal = {each: penalty for each, penalty in penalties.items() if penalty > 0.0}
        self._anchors = np.array([space.encode(each) for each in (*self.legal, *illegal)])
        kernel = np.exp(-_squares(self._anchors, self._anchors) / (2 * _WIDTH**2))
        self._solved = np.linalg.inv(kernel + _JITTER * np.eye(len(kernel)))
        self._penalties = self._solved @ np.array([0.0] * len(self.legal) + [*illegal.values()])
        self._times = np.zeros(len(self._anchors))
        self._mean = 0.0
        self._places = [np.array([k.encode(v) for v in k.values]) for k in space.knobs]
        # Settings are numbered, their first knob's value by the largest stride.
        sizes = [len(each) for each in self._places]
        self._strides = np.array([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
        self._known: set[int] = set()
        # The configurations that may still be proposed.
        self._open: dict[int, Config] = {}

    def fit(self, expected_us: Array) -> None:
        """Let the smooth time pass through these, of the `legal` anchors."""
        logs = np.log(expected_us)
        self._mean = float(logs.mean())
        values = np.zeros(len(self._anchors))
        values[: len(logs)] = logs - self._mean
        self._times = self._solved @ values

    def log_us(self, points: Array) -> Array:
        """The logarithm of the smooth time at each point."""
        return np.asarray(self._mean + self._kernel(points) @ self._times)

    def penalty(self, points: Array) -> Array:
        """Return how far each point is from legality: 0 if it is legal."""
        return np.asarray(np.maximum(0.0, self._kernel(points) @ self._penalties))

    def slope(self, points: Array, *, penalty: float) -> Array:
        """The gradient of `log_us + penalty * penalty(x)^2` at each point."""
        kernel = self._kernel(points)
        outside = np.maximum(0.0, kernel @ self._penalties)
        weights = self._times[None] + 2 * penalty * outside[:, None] * self._penalties[None]
        pulls = kernel * weights
        toward = pulls @ self._anchors - pulls.sum(axis=1, keepdims=True) * points
        return np.asarray(toward / _WIDTH**2)

    def rounded(self, points: Array, seen: set[Config], *, most: int) -> list[Config]:
        """Return the legal unseen configurations nearest to points, the fastest by smooth time.

        One knob of each may be rounded the other way: what is nearest is often illegal, where
        one knob has to divide another.
        """
        distances = [np.abs(points[:, i, None] - each) for i, each in enumerate(self._places)]
        by_distance = [np.argsort(each, axis=1, kind="stable") for each in distances]
        nearest = np.stack([each[:, 0] for each in by_distance], axis=1)
        roundings = [nearest @ self._strides]
        for knob, each in enumerate(by_distance):
            if each.shape[1] > 1:
                turned = (each[:, 1] - each[:, 0]) * self._strides[knob]
                roundings.append(roundings[0] + turned)
        unknown = set(np.concatenate(roundings).tolist()) - self._known
        numbers = np.array([*sorted(unknown), *self._open], dtype=np.int64)
        if not numbers.size:
            return []
        places = np.stack(
            [
                each[numbers // stride % len(each)]
                for each, stride in zip(self._places, self._strides, strict=True)
            ],
            axis=1,
        )
        found: list[Config] = []
        asked = 0
        for at in np.argsort(self.log_us(places) + self.penalty(places), kind="stable"):
            number = int(numbers[at])
            if number in unknown:
                if asked == _ASKED:
                    continue
                asked += 1
                self._known.add(number)
                if (config := self._legal_at(number)) is None:
                    continue
                self._open[number] = config
            if self._open[number] in seen:
                del self._open[number]
            else:
                found.append(self._open[number])
            if len(found) == most:
                break
        return found

    def _legal_at(self, number: int) -> Config | None:
        """Return the configuration of a setting, by its number, or None if it is not legal."""
        point = {
            knob.name: knob.values[number // int(stride) % len(knob.values)]
            for knob, stride in zip(self._space.knobs, self._strides, strict=True)
        }
        config = self._space.config_at(point)
        return None if config is None or self._space.broken(config) else config

    def _kernel(self, points: Array) -> Array:
        return np.exp(-_squares(points, self._anchors) / (2 * _WIDTH**2))


def _squares(a: Array, b: Array) -> Array:
    """The squared distance of every row of `a` to every row of `b`."""
    products = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
    return np.asarray(np.maximum(0.0, products))
