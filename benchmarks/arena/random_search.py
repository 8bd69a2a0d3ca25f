"""Candidates in random order: the baseline that every other strategy has to beat."""

from __future__ import annotations

import random

from boltgen.tuning.strategies.strategy import InOrder, SearchProblem


def random_search(problem: SearchProblem, rng: random.Random) -> InOrder:
    """All candidates, shuffled."""
    configs = list(problem.candidates)
    rng.shuffle(configs)
    return InOrder(configs)
