"""Candidates in random order: what every other strategy has to beat."""

from __future__ import annotations

import random

from boltgen.space.config import Cutlass2Config
from boltgen.tune.strategies.exhaustive import InOrder
from boltgen.tune.strategies.strategy import SearchProblem


def random_search(problem: SearchProblem, rng: random.Random) -> InOrder[Cutlass2Config]:
    """All candidates, shuffled."""
    configs = list(problem.candidates)
    rng.shuffle(configs)
    return InOrder(configs)
