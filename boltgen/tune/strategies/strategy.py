"""What a search strategy is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Problem
from boltgen.space.config import AnyConfig, Cutlass2Config
from boltgen.space.knobs import ConfigSpace
from boltgen.tune.outcome import Outcome

# What is searched: configurations of single products, or of chains.
C = TypeVar("C", bound=AnyConfig)
Observation: TypeAlias = tuple[C, Outcome]


class Strategy(Protocol[C]):
    """Proposes configurations of one problem, and learns from their outcomes.

    It owns no budget, compiles nothing and measures nothing; the session does. What it proposes
    may be illegal or known: the session then answers at once, with what it knows.
    """

    def propose(self, count: int) -> list[C]:
        """At most `count` configurations not proposed before; empty if there are no more."""
        ...

    def observe(self, results: Sequence[Observation[C]]) -> None:
        """Hear the outcomes of what was proposed, in any order, and of nothing else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """What a strategy searches: a problem with an epilogue.

    `candidates` are legal and worth trying, the predicted fastest first; `space` also holds what
    lies between them, for strategies that move.
    """

    problem: Problem
    epilogue: ElementwiseGraph
    candidates: tuple[Cutlass2Config, ...]
    space: ConfigSpace


# A strategy of its own for every problem; all randomness comes from the generator passed in.
StrategyFactory: TypeAlias = Callable[[SearchProblem, random.Random], Strategy[Cutlass2Config]]
