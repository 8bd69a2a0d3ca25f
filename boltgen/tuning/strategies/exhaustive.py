"""Every candidate, the most promising first: a session cut short has tried the best."""

from __future__ import annotations

import random

from boltgen.tuning.strategies.strategy import InOrder, SearchProblem


def exhaustive(problem: SearchProblem, rng: random.Random) -> InOrder:
    """All candidates in their order."""
    del rng
    return InOrder(problem.candidates)
