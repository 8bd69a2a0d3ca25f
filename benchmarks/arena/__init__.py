"""Search strategies that boltgen is compared with, and the problems of the comparison."""

from __future__ import annotations

from benchmarks.arena.annealing import Annealing
from benchmarks.arena.gradient_descent import GradientDescent
from benchmarks.arena.random_search import random_search
from boltgen.tuning.strategies import STRATEGIES
from boltgen.tuning.strategies.strategy import StrategyFactory

ALL_STRATEGIES: dict[str, StrategyFactory] = {
    **STRATEGIES,
    "random": random_search,
    "annealing": Annealing,
    "gradient": GradientDescent,
}
