"""Every candidate, the most promising first: a session cut short has tried the best."""

from __future__ import annotations

import random
from collections.abc import Sequence

from boltgen.space.config import Cutlass2Config
from boltgen.tune.strategies.strategy import Observation, SearchProblem


class InOrder:
    """Proposes the given configurations one after the other."""

    def __init__(self, configs: Sequence[Cutlass2Config]) -> None:
        self._left = list(reversed(configs))

    def propose(self, count: int) -> list[Cutlass2Config]:
        """The next `count` of them."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def observe(self, results: Sequence[Observation]) -> None:
        """Learn nothing."""


def exhaustive(problem: SearchProblem, rng: random.Random) -> InOrder:
    """All candidates in their order."""
    del rng
    return InOrder(problem.candidates)
