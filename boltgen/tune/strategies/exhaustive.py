"""Every candidate, the most promising first: a session cut short has tried the best."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic

from boltgen.space.config import Cutlass2Config
from boltgen.tune.strategies.strategy import C, Observation, SearchProblem


class InOrder(Generic[C]):
    """Proposes the given configurations one after the other."""

    def __init__(self, configs: Sequence[C]) -> None:
        self._left = list(reversed(configs))

    def propose(self, count: int) -> list[C]:
        """The next `count` of them."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def observe(self, results: Sequence[Observation[C]]) -> None:
        """Learn nothing."""


def exhaustive(problem: SearchProblem, rng: random.Random) -> InOrder[Cutlass2Config]:
    """All candidates in their order."""
    del rng
    return InOrder(problem.candidates)
