"""Simulated annealing: walks that accept slower neighbours while they are hot.

Source: Kirkpatrick, Gelatt and Vecchi, Optimization by simulated annealing, 1983: a step is taken
with probability exp(-(log t' - log t) / T).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from boltgen.families.family import Config
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# The first steps may lose a third of the time; after each outcome they may lose less. Choices.
_HOT = 0.3
_COOLING = 0.97


class Annealing:
    """One walk, whose neighbourhood is measured in batches; it restarts when it is stuck."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        self._rng = rng
        self._spaces = {space.family: space for space in problem.spaces}
        self._likeliest = list(reversed(problem.candidates))
        self._any = rng.sample(problem.candidates, len(problem.candidates))
        self._seen: set[Config] = set()
        self._here: Config | None = None
        self._here_us = math.inf
        self._heat = _HOT

    def propose(self, count: int) -> list[Config]:
        """Neighbours of where the walk is, then the likeliest and random candidates in turns."""
        chosen: list[Config] = []
        if self._here is not None:
            space = self._spaces[self._here.family]
            near = [each for each in space.neighbours(self._here) if each not in self._seen]
            legal = [each for each in near if not space.broken(each)]
            chosen = self._rng.sample(legal, min(count, len(legal)))
        self._seen.update(chosen)
        while len(chosen) < count and (self._likeliest or self._any):
            at_random = (self._any and len(chosen) % 2) or not self._likeliest
            start = (self._any if at_random else self._likeliest).pop()
            if start not in self._seen:
                self._seen.add(start)
                chosen.append(start)
        return chosen

    def observe(self, results: Sequence[Observation]) -> None:
        """Step, or stay."""
        for config, outcome in results:
            self._heat *= _COOLING
            if not isinstance(outcome, Timing):
                continue
            loss = math.log(outcome.median_us / self._here_us) if self._here else -math.inf
            if loss <= 0 or self._rng.random() < math.exp(-loss / self._heat):
                self._here, self._here_us = config, outcome.median_us
