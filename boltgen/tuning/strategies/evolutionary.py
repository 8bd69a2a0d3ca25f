"""Evolution: mutate and cross fast configurations, and measure the best by a model.

Source: Zheng et al., Ansor, OSDI 2020, section 5.1: sampling, mutation of a knob, crossover knob by
knob, and ranking by a cost model. Here the model is the cost model, corrected by measurements.
Ansor samples because its spaces are too large to enumerate; here a space has few enough kernels to
predict all of them (`reach`). Ansor sometimes picks at random (epsilon-greedy); this search then
picks by the uncorrected cost model, because the corrections may be wrong. An uncertain
configuration is scored faster than expected (`Residual.hopeful_us`).
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

# Ansor's epsilon and share of mutants are for its batches; these, and the numbers of parents and
# children, are for batches of eight. Choices.
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
        """Propose configurations with the shortest hoped times, and the cost model's first.

        Children of the fastest configurations are among the reached ones.
        """
        self._reach.add(self._children())
        expected = self._reach.likeliest()[::-1]
        predicted = self._reach.predicted(count, listed=not self._times_us)[::-1]
        chosen: dict[Config, None] = {}
        while len(chosen) < count and (expected or predicted):
            # Unlisted configurations may all fail, so until a time is known every other proposal is
            # listed.
            is_turn = self._rng.random() < _EPSILON if self._times_us else len(chosen) % 2 == 0
            trusts_model = is_turn or not expected
            chosen[(predicted if trusts_model and predicted else expected).pop()] = None
        self._reach.take(chosen)
        return list(chosen)

    def observe(self, results: Sequence[Observation]) -> None:
        """Store the outcomes; fast configurations become parents."""
        self._residual.observe(results)
        for config, outcome in results:
            if isinstance(outcome, Timing):
                self._times_us[config] = outcome.median_us

    def _children(self) -> Iterator[Config]:
        """Yield legal configurations, each from one or two parents."""
        by_time = sorted((us, order(each), each) for each, us in self._times_us.items())
        parents = [each for _, _, each in by_time[:_PARENTS]]
        for _ in range(_CHILDREN if parents else 0):
            child = self._child(parents)
            if child is not None:
                yield child

    def _child(self, parents: Sequence[Config]) -> Config | None:
        # The minimum of two random ranks prefers the fastest as a parent.
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
        """Return a point's configuration, or None if illegal; cached, because points repeat."""
        key = (space.family, *point.values())
        if key not in self._known:
            config = space.config_at(point)
            is_legal = config is not None and not space.broken(config)
            self._known[key] = config if is_legal else None
        return self._known[key]
