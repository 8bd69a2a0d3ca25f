"""What measurements say beyond the cost model: the model's error near what was measured.

A Gaussian kernel over the knobs' encodings: error(c) = sum w_i e_i / (w_0 + sum w_i), with
w_i = exp(-|c - c_i|^2 / 2 h^2) and e_i = log(measured_i / predicted_i). Far from all that was
measured it is the mean error of the family. Source: Nadaraya, On estimating regression, 1964.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# Knobs are encoded in 0 to 1: a step of one of them. A choice.
_WIDTH = 0.2
# The mean error counts as a measurement at this distance does. A choice.
_PRIOR_WEIGHT = 0.3
# A failing configuration is passed over, and its like are less likely. A choice: e times as slow.
_FAILED = 1.0


class Residual:
    """Predicted times of a problem's configurations, corrected by what was observed."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem
        self._spaces = {space.family: space for space in problem.spaces}
        # Of each configuration that was asked for: its predicted time, and its place.
        self._facts: dict[Config, tuple[float, tuple[float, ...]]] = {}
        self._places: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        self._errors: dict[str, list[float]] = defaultdict(list)

    def observe(self, results: Sequence[Observation]) -> None:
        """Take outcomes in."""
        self._look_up([config for config, _ in results])
        for config, outcome in results:
            predicted_us, place = self._facts[config]
            error = _FAILED
            if isinstance(outcome, Timing):
                error = math.log(outcome.median_us / predicted_us)
            self._places[config.family].append(place)
            self._errors[config.family].append(error)

    def expected_us(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """The corrected time of each configuration."""
        self._look_up(configs)
        expected = np.array([self._facts[config][0] for config in configs])
        families = np.array([config.family for config in configs])
        for family in set(families):
            chosen = np.flatnonzero(families == family)
            places = np.array([self._facts[configs[int(index)]][1] for index in chosen])
            expected[chosen] *= np.exp(self._error(family, places))
        return expected

    def spread(self, family: str) -> float:
        """The standard deviation of a family's errors, in logarithms; infinite for fewer than 2."""
        errors = self._errors[family]
        return float(np.std(errors, ddof=1)) if len(errors) > 1 else math.inf

    def _look_up(self, configs: Sequence[Config]) -> None:
        new = [config for config in configs if config not in self._facts]
        for config, time_us in zip(new, self._problem.predicted_us(new), strict=True):
            self._facts[config] = time_us, self._spaces[config.family].encode(config)

    def _error(self, family: str, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """The model's error at each of a family's places."""
        errors = np.array(self._errors[family])
        if not errors.size:
            every = [error for found in self._errors.values() for error in found]
            return np.full(len(places), statistics.fmean(every) if every else 0.0)
        distance = ((places[:, None, :] - np.array(self._places[family])[None]) ** 2).sum(axis=2)
        weights = np.exp(-distance / (2 * _WIDTH**2))
        corrected = weights @ errors + _PRIOR_WEIGHT * errors.mean()
        return np.asarray(corrected / (weights.sum(axis=1) + _PRIOR_WEIGHT))
