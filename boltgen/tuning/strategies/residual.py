"""Correct the cost model by measurements of one workload: see `experience`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boltgen.families.family import Config
from boltgen.ir.outcome import BLAMELESS, Timing
from boltgen.tuning.strategies.experience import Array, Fact, Places, Posterior
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# The standard deviations by which an uncertain configuration is scored faster. A choice: of 0, 0.5
# and 1 it serves best after 64 trials on invented devices with seeds outside the arena (100 to
# 106), by less than their intervals.
_HOPE = 0.5


@dataclass(frozen=True, slots=True)
class Points:
    """Configurations as numbers: predicted times, and places in their families' spaces."""

    predicted_us: Array
    places: Places

    def __getitem__(self, chosen: NDArray[np.intp]) -> Points:
        return Points(self.predicted_us[chosen], self.places[chosen])

    def joined(self, others: Points) -> Points:
        """Return these points and `others`, concatenated."""
        predicted_us = np.append(self.predicted_us, others.predicted_us)
        return Points(predicted_us, self.places.joined(others.places))


class Residual:
    """Predicted times of a problem's configurations, corrected by outcomes of its session."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem
        self._spaces = {space.family: space for space in problem.spaces}
        self._encoded: dict[Config, tuple[str, tuple[float, ...]]] = {}
        self._found: Posterior | None = None
        self._version = -1

    def observe(self, results: Sequence[Observation]) -> None:
        """Add outcomes, except faults that do not depend on the configuration."""
        told = [(c, o) for c, o in results if isinstance(o, Timing) or o.fault not in BLAMELESS]
        predicted_us = self._problem.predicted_us([config for config, _ in told])
        facts = {}
        for (config, outcome), us in zip(told, predicted_us, strict=True):
            family, place = self._place(config)
            error = math.log(outcome.median_us / us) if isinstance(outcome, Timing) else None
            facts[config] = Fact(predicted_us=us, family=family, place=place, error=error)
        self._problem.experience.learn(self._problem.workload, facts)

    def points(self, configs: Sequence[Config]) -> Points:
        """Return configurations as numbers, for repeated predictions."""
        return Points(
            np.array(self._problem.predicted_us(configs)),
            Places.of([self._place(config) for config in configs]),
        )

    def expected(self, points: Points) -> tuple[Array, Array]:
        """Return corrected times in microseconds, and their logarithms' standard deviations."""
        errors, spread = self._posterior.of(points.places)
        return points.predicted_us * np.exp(errors), spread

    def hopeful_us(self, points: Points) -> Array:
        """Return the corrected times, lowered for uncertain configurations, in microseconds.

        So a search tries configurations that may win. Source: Srinivas et al., Gaussian process
        optimization in the bandit setting, ICML 2010, equation 6.
        """
        expected_us, spread = self.expected(points)
        return np.asarray(expected_us * np.exp(-_HOPE * spread))

    @property
    def _posterior(self) -> Posterior:
        experience = self._problem.experience
        if self._found is None or self._version != experience.version:
            self._found = experience.posterior(self._problem.workload)
            self._version = experience.version
        return self._found

    def _place(self, config: Config) -> tuple[str, tuple[float, ...]]:
        found = self._encoded.get(config)
        if found is None:
            found = config.family, self._spaces[config.family].encode(config)
            self._encoded[config] = found
        return found
