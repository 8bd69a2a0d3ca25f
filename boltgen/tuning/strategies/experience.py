"""Predict configurations that were not measured from all that one session measured.

The cost model's errors e = log(measured / predicted) are a Gaussian process over configurations x,
encoded by their knobs, and workloads w with sizes z in doublings:

    k = s^2 (A^2 + C^2 [w = w'] + near(x, x') (B^2 + D^2 like(z, z')))   with
    near = exp(-|x - x'|^2 / 2 H^2) within a family, like = exp(-|z - z'|^2 / 2 L^2) within a kind

    error(x, w) = k G^-1 e,   spread^2 = k(x, x) - k G^-1 k',   G = k + s^2 N^2 on what was measured
    s^2 = (F + e G^-1 e at s = 1) / (F + n)

So an outcome informs about similar configurations of other problems, above all of problems of
similar sizes. For problems far from all measured ones `like` is 0: only the effects of
configurations remain, and the spread grows to an unknown problem's.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.25, 2.26;
the scale s is the mean of an inverse gamma's, as in their section 9.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.problems.workload import Workload

Array = NDArray[np.float64]

# The choices that serve best on recorded times of the RTX 2080 Ti and in the arena. For 12 problems
# of these times, marginal likelihood fits B = 0.22, C = 0.09, D = 0.21, H = 0.37, L = 1.4.
_COMMON, _OF_CONFIG, _OF_WORKLOAD, _OF_BOTH = 0.3, 0.1, 0.1, 0.2
_WIDTH, _DOUBLINGS = 0.25, 1.4
_NOISE = 0.08
# F: the prior of the scale counts as this many outcomes. A choice.
_FIRM = 8
# The most outcomes in total, which bounds the computing time, and from each other workload. The
# workload's own outcomes come first, then similar workloads' outcomes. Of another workload the
# predicted fastest are used: the model's error on slow configurations depends on the problem, and
# the measured fastest was also lucky. Choices.
_MOST, _FROM_OTHERS = 128, 16
# A failure makes similar configurations less likely for all workloads: e times as slow if all of
# them failed. An unknown similar configuration counts as this share of one that ran. Choices.
_FAILED, _UNKNOWN = 1.0, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """An outcome: its configuration's place in the family's space, and the cost model's error.

    `error` is log(measured / predicted), or None for a failure.
    """

    predicted_us: float
    family: str
    place: tuple[float, ...]
    error: float | None


@dataclass(frozen=True, slots=True)
class Places:
    """Points in spaces of several kinds: the number of each point's kind, and its coordinates.

    `rows` are padded with zeros beyond a kind's coordinates.
    """

    kinds: tuple[str, ...]
    numbers: NDArray[np.intp]
    rows: Array

    @classmethod
    def of(cls, points: Sequence[tuple[str, Sequence[float]]]) -> Places:
        """Return places from pairs of kind and coordinates."""
        rows = np.zeros((len(points), max((len(each) for _, each in points), default=0)))
        for row, (_, coordinates) in zip(rows, points, strict=True):
            row[: len(coordinates)] = coordinates
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(k for k, _ in points))}
        return cls(tuple(kinds), np.array([kinds[k] for k, _ in points], dtype=np.intp), rows)

    def __getitem__(self, chosen: NDArray[np.intp]) -> Places:
        return Places(self.kinds, self.numbers[chosen], self.rows[chosen])

    def joined(self, others: Places) -> Places:
        """Return these places and `others`, concatenated."""
        kinds = tuple(dict.fromkeys((*self.kinds, *others.kinds)))
        renumbered = np.array([kinds.index(kind) for kind in others.kinds], dtype=np.intp)
        numbers = np.append(self.numbers, renumbered[others.numbers])
        rows = np.zeros((len(numbers), max(self.rows.shape[1], others.rows.shape[1])))
        rows[: len(self.rows), : self.rows.shape[1]] = self.rows
        rows[len(self.rows) :, : others.rows.shape[1]] = others.rows
        return Places(kinds, numbers, rows)

    def near(self, others: Places, width: float) -> Array:
        """Return exp(-distance^2 / 2 width^2) for all pairs; 0 for points of different kinds."""
        shared = min(self.rows.shape[1], others.rows.shape[1])
        squares = (self.rows**2).sum(axis=1)[:, None] + (others.rows**2).sum(axis=1)[None]
        squares -= 2 * self.rows[:, :shared] @ others.rows[:, :shared].T
        near = np.exp(np.maximum(squares, 0.0) / (-2 * width**2))
        same = np.array([[a == b for b in others.kinds] for a in self.kinds], dtype=bool)
        if not same.all():
            near *= same[self.numbers[:, None], others.numbers[None]]
        return np.asarray(near)


class Experience:
    """The outcomes on one device, with one cost model's predictions, by workload."""

    def __init__(self) -> None:
        self._known: dict[Workload, dict[Config, Fact]] = {}
        self._sizes: dict[Workload, tuple[str, list[float]]] = {}
        self.version = 0

    def learn(self, workload: Workload, facts: Mapping[Config, Fact]) -> None:
        """Add outcomes; a newer outcome replaces an older one."""
        if not facts:
            return
        self._sizes.setdefault(workload, _sizes(workload))
        self._known.setdefault(workload, {}).update(facts)
        self.version += 1

    def __contains__(self, workload: object) -> bool:
        return workload in self._known

    def posterior(self, workload: Workload) -> Posterior:
        """Return the prediction of all outcomes so far for a workload."""
        known = list(self._known)
        here = Places.of([_sizes(workload)])
        sizes = Places.of([self._sizes[each] for each in known])
        like = here.near(sizes, _DOUBLINGS)[0] if known else np.zeros(0)
        own = np.array([each == workload for each in known], dtype=bool)
        numbers: list[int] = []
        facts: list[Fact] = []
        for number in np.lexsort((-like, ~own)).tolist():
            told = list(self._known[known[number]].values())[::-1]
            if not own[number]:
                told = sorted(told, key=_predicted_us)[:_FROM_OTHERS]
            told = told[: _MOST - len(facts)]
            facts += told
            numbers += [number] * len(told)
        at = np.array(numbers, dtype=np.intp)
        return Posterior(facts, at, like=like, own=own, sizes=sizes)


class Posterior:
    """The prediction for one workload's configurations from outcomes; see the module.

    `workloads` has the number of each fact's workload; `like`, `own` and `sizes` are indexed by it.
    """

    def __init__(
        self,
        facts: Sequence[Fact],
        workloads: NDArray[np.intp],
        *,
        like: Array,
        own: NDArray[np.bool_],
        sizes: Places,
    ) -> None:
        self._tried = Places.of([(fact.family, fact.place) for fact in facts])
        self._failed = np.array([fact.error is None for fact in facts], dtype=bool)
        self._timed = np.flatnonzero(~self._failed)
        at = workloads[self._timed]
        timed = self._tried[self._timed]
        self._like, self._own = like[at], own[at]
        errors = np.array([fact.error for fact in facts if fact.error is not None])
        kernel = _kernel(
            timed.near(timed, _WIDTH),
            sizes[at].near(sizes[at], _DOUBLINGS),
            at[:, None] == at[None],
        )
        self._inverse = np.linalg.inv(kernel + _NOISE**2 * np.eye(len(at)))
        self._solved = self._inverse @ errors
        self.scale = math.sqrt((_FIRM + errors @ self._solved) / (_FIRM + len(errors)))

    def of(self, places: Places) -> tuple[Array, Array]:
        """Return the expected error of each configuration, and its standard deviation.

        The error includes a penalty for similar failures; the deviation excludes the noise of a
        launch.
        """
        near = places.near(self._tried, _WIDTH)
        covariance = self._covariance(near)
        known = (covariance @ self._inverse * covariance).sum(axis=1)
        spread = self.scale * np.sqrt(np.maximum(_PRIOR - known, 0.0))
        return covariance @ self._solved + self._fear(near), spread

    def _covariance(self, near: Array) -> Array:
        return _kernel(near[:, self._timed], self._like[None], self._own[None])

    def _fear(self, near: Array) -> Array:
        return np.asarray(_FAILED * near @ self._failed / (_UNKNOWN + near.sum(axis=1)))


def _predicted_us(fact: Fact) -> float:
    return fact.predicted_us


def _kernel(near: Array, like: Array, same: NDArray[np.bool_]) -> Array:
    """Return k at s = 1."""
    of_configs = near * (_OF_CONFIG**2 + _OF_BOTH**2 * like)
    return np.asarray(_COMMON**2 + _OF_WORKLOAD**2 * same + of_configs)


_PRIOR = _COMMON**2 + _OF_CONFIG**2 + _OF_WORKLOAD**2 + _OF_BOTH**2


def _sizes(workload: Workload) -> tuple[str, list[float]]:
    """Return the names of a workload's sizes as one text, and each size in doublings."""
    extents = [layer.problem.extents for layer in workload.layers]
    kinds = (type(layer.problem).__name__ for layer in workload.layers)
    named = " ".join(
        f"{kind}({', '.join(each)})" for kind, each in zip(kinds, extents, strict=True)
    )
    return named, [math.log2(1 + size) for each in extents for size in each.values()]
