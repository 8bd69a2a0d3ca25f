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
from boltgen.families.space import AnySpace
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
        # Those that were not proposed, in their order.
        self._fresh = dict.fromkeys(problem.candidates)
        self._seen: set[Config] = set()
        self._times_us: dict[Config, float] = {}
        self._known: dict[tuple[object, ...], Config | None] = {}

    def propose(self, count: int) -> list[Config]:
        """Children of the fastest, candidates of the model, and a few at random."""
        fresh = list(self._fresh)
        sampled = self._rng.sample(fresh, min(_PARENTS, len(fresh))) if self._times_us else []
        pool = list(dict.fromkeys((*self._children(), *fresh[:_PARENTS], *sampled)))
        if not pool:
            return []
        expected_us, _ = self._residual.expected(self._residual.points(pool))
        ranked = [pool[i] for i in np.argsort(-expected_us, kind="stable")]
        drawn = self._rng.sample(fresh, min(count, len(fresh)))
        chosen: list[Config] = []
        while len(chosen) < count and (ranked or drawn):
            at_random = self._rng.random() < _EPSILON or not ranked
            config = (drawn if at_random and drawn else ranked).pop()
            if config not in self._seen:
                self._seen.add(config)
                self._fresh.pop(config, None)
                chosen.append(config)
        return chosen

    def observe(self, results: Sequence[Observation]) -> None:
        """Let the fast ones become parents."""
        self._residual.observe(results)
        for config, outcome in results:
            if isinstance(outcome, Timing):
                self._times_us[config] = outcome.median_us

    def _children(self) -> Iterator[Config]:
        """Legal configurations not seen yet, each a parent's or of two."""
        by_time = sorted((us, order(each), each) for each, us in self._times_us.items())
        parents = [each for _, _, each in by_time[:_PARENTS]]
        for _ in range(_CHILDREN if parents else 0):
            child = self._child(parents)
            if child is not None and child not in self._seen:
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
            return self._legal_at(space, {**point, **changed})
        other = self._rng.choice([each for each in parents if each.family == parent.family])
        others = space.point_of(other)
        crossed = {name: self._rng.choice((value, others[name])) for name, value in point.items()}
        return self._legal_at(space, crossed)

    def _legal_at(self, space: AnySpace, point: dict[str, int]) -> Config | None:
        """The configuration of a point; None where it is not legal. Many are come to again."""
        key = (space.family, *point.values())
        if key not in self._known:
            config = space.config_at(point)
            is_legal = config is not None and not space.broken(config)
            self._known[key] = config if is_legal else None
        return self._known[key]
