"""The interface of a search strategy, and the registry by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from boltgen.families.family import Config
from boltgen.families.space import AnySpace
from boltgen.ir.outcome import Outcome
from boltgen.problems.workload import Workload
from boltgen.tuning.strategies.experience import Experience

Observation: TypeAlias = tuple[Config, Outcome]


class Strategy(Protocol):
    """Proposes configurations of one workload, and learns from their outcomes.

    The session owns the budget, compiles and measures. A strategy may propose illegal or known
    configurations; the session then answers at once.
    """

    def propose(self, count: int) -> list[Config]:
        """Return at most `count` configurations that were not proposed before.

        The list is empty while the strategy waits for outcomes, and after its last proposal.
        """
        ...

    def observe(self, results: Sequence[Observation]) -> None:
        """Receive outcomes of its proposals, in any order; no other outcomes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """A workload to search, as it ships or without its epilogue.

    `candidates` are legal and promising, the likeliest first. `spaces`, one per family that
    computes the workload, also have other configurations, for strategies that move between them.
    `predicted_us` returns the cost model's times of legal configurations. `experience` has the
    outcomes so far, of other workloads too.
    """

    workload: Workload
    candidates: tuple[Config, ...]
    spaces: tuple[AnySpace, ...]
    predicted_us: Callable[[Sequence[Config]], Sequence[float]]
    experience: Experience = field(default_factory=Experience)


# Makes a new strategy for a workload; all randomness comes from the given generator.
StrategyFactory: TypeAlias = Callable[[SearchProblem, random.Random], Strategy]


class InOrder:
    """A strategy that proposes given configurations one after the other."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._left = list(reversed(configs))

    def propose(self, count: int) -> list[Config]:
        """Return the next `count` configurations."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def observe(self, results: Sequence[Observation]) -> None:
        """Ignore the outcomes."""
