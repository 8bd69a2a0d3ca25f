"""Search strategies, which decide what to try next, one short file each.

`STRATEGIES` has them by name; `benchmarks/arena` compares them with others.
"""

from __future__ import annotations

from boltgen.errors import BoltgenError
from boltgen.tuning.strategies.evolutionary import Evolutionary
from boltgen.tuning.strategies.exhaustive import exhaustive
from boltgen.tuning.strategies.model_first import model_first
from boltgen.tuning.strategies.strategy import StrategyFactory

STRATEGIES: dict[str, StrategyFactory] = {
    "exhaustive": exhaustive,
    "evolutionary": Evolutionary,
    "model-first": model_first,
}


def strategy_named(name: str) -> StrategyFactory:
    """Return the strategy called `name`.

    Raises:
        BoltgenError: no strategy has the name; the message lists the known ones.
    """
    if name not in STRATEGIES:
        raise BoltgenError(f"unknown strategy {name!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
