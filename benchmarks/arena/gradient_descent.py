"""Gradient descent: knobs become real numbers, and legality's slacks become penalties of a smooth
time.

Adam descends from several starts along what was fast, likely or anything; what its paths come near
to is rounded to configurations, which a cost model ranks, corrected by what was measured.

Source: Zhao et al., Felix, ASPLOS 2024, section 3.4, algorithm 1 and equation 4; Kingma and Ba,
Adam, ICLR 2015.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.relaxation import Relaxation
from boltgen.families.family import Config
from boltgen.families.registry import order
from boltgen.ir.outcome import Timing
from boltgen.tuning.strategies.residual import Points, Residual
from boltgen.tuning.strategies.strategy import Observation, SearchProblem

# Equation 4's lambda, which the paper leaves open, and Adam's decays as its authors give them.
_PENALTY = 1.0
_DECAYS = (0.9, 0.999)
# Felix's 8 starts of each family, half of them at random; its 200 steps are 12 larger ones here:
# a knob has at most eight values. A choice, as the number of rounded points is that the cost model
# is asked about, beside as many candidates that it likes.
_STARTS, _STEPS, _RATE = 8, 12, 0.08
_ROUNDED = 16

Array = NDArray[np.float64]


class GradientDescent:
    """See the module. Without outcomes it is the cost model's order."""

    def __init__(self, problem: SearchProblem, rng: random.Random) -> None:
        self._rng = rng
        self._residual = Residual(problem)
        self._spaces = {space.family: space for space in problem.spaces}
        self._relaxations: dict[str, tuple[Relaxation, Points]] = {}
        # Candidates that were not proposed, in their order.
        self._left = dict.fromkeys(problem.candidates)
        self._seen: set[Config] = set()
        self._times_us: dict[Config, float] = {}

    def propose(self, count: int) -> list[Config]:
        """Propose the expected fastest of the configurations near descents and the model's
        candidates.
        """
        found = self._descended() if self._times_us else ()
        pool = list(dict.fromkeys((*found, *islice(self._left, _ROUNDED))))
        if not pool:
            return []
        expected_us, _ = self._residual.expected(self._residual.points(pool))
        fastest = np.argsort(expected_us, kind="stable")
        chosen = [pool[i] for i in fastest[:count]]
        self._seen.update(chosen)
        for config in chosen:
            self._left.pop(config, None)
        return chosen

    def observe(self, results: Sequence[Observation]) -> None:
        """Move the smooth times to what was measured."""
        self._residual.observe(results)
        for config, outcome in results:
            if isinstance(outcome, Timing):
                self._times_us[config] = outcome.median_us

    def _descended(self) -> Iterator[Config]:
        """Legal configurations not seen yet, near the paths of descents."""
        by_time = sorted((us, order(each), each) for each, us in self._times_us.items())
        fastest = [each for _, _, each in by_time]
        for family, space in self._spaces.items():
            own: Iterator[Config] = (
                each for each in (*fastest, *self._left) if each.family == family
            )
            if family not in self._relaxations:
                likeliest = list(own)
                if not likeliest:
                    continue
                made = Relaxation(space, likeliest, self._rng)
                self._relaxations[family] = made, self._residual.points(made.legal)
                own = iter(likeliest)
            relaxation, anchors = self._relaxations[family]
            relaxation.fit(self._residual.expected(anchors)[0])
            starts = [space.encode(config) for config in islice(own, _STARTS // 2)]
            starts += [tuple(self._rng.random() for _ in space.knobs) for _ in range(_STARTS // 2)]
            yield from relaxation.rounded(
                _path(relaxation, np.array(starts)), self._seen, most=_ROUNDED
            )


def _path(relaxation: Relaxation, starts: Array) -> Array:
    """All points that Adam passes from each start, within 0 and 1."""
    points, passed = starts, [starts]
    mean, square = np.zeros_like(points), np.zeros_like(points)
    for step in range(1, _STEPS + 1):
        slope = relaxation.slope(points, penalty=_PENALTY)
        mean += (1.0 - _DECAYS[0]) * (slope - mean)
        square += (1.0 - _DECAYS[1]) * (slope * slope - square)
        unbiased = mean / (1.0 - _DECAYS[0] ** step), square / (1.0 - _DECAYS[1] ** step)
        points = np.clip(points - _RATE * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8), 0.0, 1.0)
        passed.append(points)
    return np.concatenate(passed)
