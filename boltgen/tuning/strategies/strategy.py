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
    """Propose configurations of one workload, and learn from their outcomes.

    It owns no budget, compiles nothing and measures nothing; the session does. It may propose
    illegal or known configurations: the session then answers at once.
    """

    def propose(self, count: int) -> list[Config]:
        """Return at most `count` configurations that were not proposed before.

        The list is empty while the strategy waits for earlier outcomes, and when it has no more.
        """
        ...

    def observe(self, results: Sequence[Observation]) -> None:
        """Hear the outcomes of what was proposed, in any order, and of nothing else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """A workload to search, as it ships or without its epilogue.

    `candidates` are legal and worth trying, the likeliest first; `spaces` also hold what lies
    between them, for strategies that move: one for each family that computes the workload.
    `predicted_us` has the cost model's times, of legal ones; `experience` what was measured so far,
    of other workloads too.
    """

    workload: Workload
    candidates: tuple[Config, ...]
    spaces: tuple[AnySpace, ...]
    predicted_us: Callable[[Sequence[Config]], Sequence[float]]
    experience: Experience = field(default_factory=Experience)


# A strategy of its own for every workload; all randomness comes from the generator passed in.
StrategyFactory: TypeAlias = Callable[[SearchProblem, random.Random], Strategy]


class InOrder:
    """Proposes the given configurations one after the other."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._left = list(reversed(configs))

    def propose(self, count: int) -> list[Config]:
        """The next `count` of them."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def observe(self, results: Sequence[Observation]) -> None:
        """Learn nothing."""
