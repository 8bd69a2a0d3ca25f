"""The likeliest first, by the cost model and by what was measured; stops when nothing can win.

Bolt and Hidet need minutes because they measure whole spaces. Here a candidate is left out if its
time would exceed the best so far even with the model's usual error: expected * exp(-z * spread) >
best.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.residual import Residual
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# Measured in the model's own order before anything is concluded from it. A choice.
_FIRST = 8
# Standard deviations of the model's error: one in 700 is further off on that side. With 2 it stops
# too early on the virtual GPU's times (`benchmarks.search_arena`). A choice.
_Z = 3.0


def model_first(problem: SearchProblem, rng: random.Random) -> ModelFirst:
    """The strategy; nothing about it is random."""
    del rng
    return ModelFirst(problem)


class ModelFirst:
    """See the module."""

    def __init__(self, problem: SearchProblem) -> None:
        self._candidates = problem.candidates
        self._residual = Residual(problem)
        self._points = self._residual.points(problem.candidates)
        # Numbers of candidates that were not proposed.
        self._left = np.arange(len(problem.candidates))
        self._waiting = 0
        self._heard = 0
        self._best_us = np.inf

    def propose(self, count: int) -> list[Config]:
        """The candidates that are expected to be fastest, if they can win."""
        if self._heard < _FIRST:
            # A few outcomes prove nothing, and outstanding outcomes prove nothing either.
            ready = max(0, _FIRST - self._heard - self._waiting)
            chosen = self._likeliest()[: min(count, ready)]
        else:
            chosen = self._likeliest()[:count]
        self._left = np.setdiff1d(self._left, chosen)
        self._waiting += len(chosen)
        return [self._candidates[number] for number in chosen]

    def _likeliest(self) -> NDArray[np.intp]:
        """Return the candidates that can win, the expected fastest first."""
        points = self._points[self._left]
        expected_us, spread = self._residual.expected(points)
        bounds_us = expected_us * np.exp(-_Z * spread)
        order = np.argsort(expected_us, kind="stable")
        return self._left[order[bounds_us[order] < self._best_us]]

    def observe(self, results: Sequence[Observation]) -> None:
        """Correct the model, and remember the best."""
        self._waiting -= len(results)
        self._heard += len(results)
        self._residual.observe(results)
        for _, outcome in results:
            if isinstance(outcome, Timing):
                self._best_us = min(self._best_us, outcome.median_us)
