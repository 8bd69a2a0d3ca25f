"""Evolution: mutate and cross fast configurations, and measure the ones that a model ranks best.

Source: Zheng et al., Ansor, OSDI 2020, section 5.1: sampling, mutation of a knob, crossover knob by
knob, and a cost model's ranking. The model is the cost model, corrected by what was measured. Ansor
samples because its spaces are too large to enumerate; here the kernels of a space are few enough to
predict them all (`reach`). And where Ansor is epsilon-greedy by chance, this search takes the cost
model's word without the corrections: the corrections may be wrong. An uncertain configuration is
scored faster than expected (`Residual.hopeful_us`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from boltgen.families.family import Config
from boltgen.families.registry import order
from boltgen.families.space import AnySpace
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.reach import Reach
from boltgen.tuning.strategies.residual import Residual
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# Ansor's epsilon, and most children are mutants, as there; that share, the number of parents and of
# children are for batches of eight. Choices.
_EPSILON = 0.25
_MUTATED = 0.85
_PARENTS = 32
_CHILDREN = 8


class Evolutionary:
    """See the module."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        self._rng = rng
        self._residual = Residual(problem)
        self._spaces = {space.family: space for space in problem.spaces}
        self._reach = Reach(problem, self._residual)
        self._times_us: dict[Config, float] = {}
        self._known: dict[tuple[object, ...], Config | None] = {}

    def propose(self, count: int) -> list[Config]:
        """Propose the hoped fastest of all reached, including children of the fastest, and the cost
        model's first.
        """
        self._reach.add(self._children())
        expected = self._reach.likeliest()[::-1]
        predicted = self._reach.predicted(count, listed=not self._times_us)[::-1]
        chosen: dict[Config, None] = {}
        while len(chosen) < count and (expected or predicted):
            # Unlisted configurations may all fail: until a time is known, every other one is a
            # listed one.
            is_turn = self._rng.random() < _EPSILON if self._times_us else len(chosen) % 2 == 0
            trusts_model = is_turn or not expected
            chosen[(predicted if trusts_model and predicted else expected).pop()] = None
        self._reach.take(chosen)
        return list(chosen)

    def observe(self, results: Sequence[Observation]) -> None:
        """Let the fast ones become parents."""
        self._residual.observe(results)
        for config, outcome in results:
            if isinstance(outcome, Timing):
                self._times_us[config] = outcome.median_us

    def _children(self) -> Iterator[Config]:
        """Legal configurations, each a parent's or of two."""
        by_time = sorted((us, order(each), each) for each, us in self._times_us.items())
        parents = [each for _, _, each in by_time[:_PARENTS]]
        for _ in range(_CHILDREN if parents else 0):
            child = self._child(parents)
            if child is not None:
                yield child

    def _child(self, parents: Sequence[Config]) -> Config | None:
        # The fastest is the likeliest parent: the least of two ranks.
        parent = parents[min(self._rng.randrange(len(parents)) for _ in range(2))]
        space = self._spaces[parent.family]
        point = space.point_of(parent)
        if self._rng.random() < _MUTATED:
            if not space.knobs:
                return None
            knob = self._rng.choice(space.knobs)
            values = knob.neighbours(point[knob.name])
            changed = {knob.name: self._rng.choice(values)} if values else {}
            return self._legal_at(space, {**point, **changed})
        other = self._rng.choice([each for each in parents if each.family == parent.family])
        others = space.point_of(other)
        crossed = {name: self._rng.choice((value, others[name])) for name, value in point.items()}
        return self._legal_at(space, crossed)

    def _legal_at(self, space: AnySpace, point: dict[str, int]) -> Config | None:
        """Return the configuration of a point, or None if it is not legal. Points repeat often."""
        key = (space.family, *point.values())
        if key not in self._known:
            config = space.config_at(point)
            is_legal = config is not None and not space.broken(config)
            self._known[key] = config if is_legal else None
        return self._known[key]
