"""Try every candidate, the most promising first, so that a short session has tried the best."""

from __future__ import annotations

import random

from boltgen.tuning.strategies.strategy import InOrder, SearchProblem


def exhaustive(problem: SearchProblem, rng: random.Random) -> InOrder:
    """Return a strategy that proposes all candidates in order."""
    del rng
    return InOrder(problem.candidates)
