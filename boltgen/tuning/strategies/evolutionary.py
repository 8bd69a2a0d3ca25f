"""Evolution: mutates and crosses what was fast, and measures the children that a model likes best.

Source: Zheng et al., Ansor, OSDI 2020, section 5.1: sampling, mutation of a knob, crossover knob by
knob, a cost model's ranking, and epsilon-greedy measurement. The model is the cost model, corrected
by what was measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from boltgen.families.family import Config
from boltgen.families.registry import order
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.residual import Residual
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# A share of what is measured is random, and most children are mutants, as in Ansor; that share, the
# population and the number of children are for spaces of hundreds and batches of eight. Choices.
_EPSILON = 0.2
_MUTATED = 0.85
_PARENTS = 32
_CHILDREN = 32


class Evolutionary:
    """See the module."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        self._rng = rng
        self._residual = Residual(problem)
        self._spaces = {space.family: space for space in problem.spaces}
        self._candidates = list(problem.candidates)
        self._seen: set[Config] = set()
        self._times_us: dict[Config, float] = {}

    def propose(self, count: int) -> list[Config]:
        """Children of the fastest, candidates of the model, and a few at random."""
        fresh = [config for config in self._candidates if config not in self._seen]
        sampled = self._rng.sample(fresh, min(_PARENTS, len(fresh))) if self._times_us else []
        pool = list(dict.fromkeys((*self._children(), *fresh[:_PARENTS], *sampled)))
        if not pool:
            return []
        ranked = [pool[i] for i in np.argsort(self._residual.expected_us(pool), kind="stable")]
        chosen: list[Config] = []
        while len(chosen) < count and (ranked or fresh):
            at_random = self._rng.random() < _EPSILON or not ranked
            config = self._rng.choice(fresh) if at_random and fresh else ranked.pop(0)
            if config not in self._seen:
                self._seen.add(config)
                chosen.append(config)
            fresh = [each for each in fresh if each not in self._seen]
            ranked = [each for each in ranked if each not in self._seen]
        return chosen

    def observe(self, results: Sequence[Observation]) -> None:
        """Let the fast ones become parents."""
        self._residual.observe(results)
        for config, outcome in results:
            if isinstance(outcome, Timing):
                self._times_us[config] = outcome.median_us

    def _children(self) -> Iterator[Config]:
        """Legal configurations not seen yet, each a parent's or of two."""
        fastest = sorted(self._times_us, key=lambda each: (self._times_us[each], order(each)))
        parents = fastest[:_PARENTS]
        for _ in range(_CHILDREN if parents else 0):
            child = self._child(parents)
            if child is not None and child not in self._seen:
                space = self._spaces[child.family]
                if not space.broken(child):
                    yield child

    def _child(self, parents: Sequence[Config]) -> Config | None:
        # The fastest is the likeliest parent: the least of two ranks.
        parent = parents[min(self._rng.randrange(len(parents)) for _ in range(2))]
        space = self._spaces[parent.family]
        point = space.point_of(parent)
        if self._rng.random() < _MUTATED:
            knob = self._rng.choice(space.knobs)
            values = knob.neighbours(point[knob.name])
            changed = {knob.name: self._rng.choice(values)} if values else {}
            return space.config_at({**point, **changed})
        other = self._rng.choice([each for each in parents if each.family == parent.family])
        others = space.point_of(other)
        return space.config_at(
            {name: self._rng.choice((value, others[name])) for name, value in point.items()}
        )
