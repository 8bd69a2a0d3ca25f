"""Times several things in turn, A B A B, in one process, and says which of two is faster.

Ours and the vendor's are launched by the same C++ (`profiler/plan.cu`): the L2 cache is emptied,
an event is recorded, launches follow, and another event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Protocol

from boltgen.bench.results import Form
from boltgen.measure.protocol import Policy
from boltgen.measure.stats import summarise
from boltgen.measure.timing import warm_up
from boltgen.measure.worker import MOST_SETS_BYTES


class Sampler(Protocol):
    """A thing that can be timed; `launches` of it are one sample."""

    launches: int

    def sample_us(self, samples: int) -> list[float]:
        """Times of one launch, in microseconds."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The rounds and limits of timing in turn. `modelled`: one sample, which is the same every
    time.

    A round takes `samples` of each, one thing after another. Rounds end when each one's 95 %
    interval of the median is within `tolerance` of it, but there are at least `least_rounds`, and
    none begins after `most_s`. `noise` is the smallest difference that is told from none.
    """

    modelled: bool = False
    samples: int = 5
    least_rounds: int = 8
    most_rounds: int = 60
    most_s: float = 3.0
    tolerance: float = 0.01
    warm_up_us: float = 2e4
    noise: float = 0.01


def operand_copies(size_bytes: int, most: int = Policy().most_sets) -> int:
    """Return how many copies of operands of that size a sample's launches have, as in all
    measuring.
    """
    return max(1, min(most, Policy().most_sets, MOST_SETS_BYTES // max(size_bytes, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The times of things that were timed in turn. `form` is part of a result: columns by name, and
    clocks seen between.

    `medians` has for each column one for each round.
    """

    form: Form
    medians: Mapping[str, Sequence[float]]
    noise: float

    def us(self, name: str) -> float:
        """Look up a column's median, in microseconds."""
        return float(self.form["columns"][name]["median_us"])

    def ratio(self, other: str, ours: str = "boltgen") -> Form:
        """Say how much faster `ours` is than `other`: the ratio of their times, round by round.

        The interval is that of the rounds' median ratio. A ratio whose interval has 1 in it, or
        that is within `noise` of 1, is a tie.
        """
        pairs = zip(self.medians[other], self.medians[ours], strict=True)
        found = summarise([theirs / own for theirs, own in pairs])
        is_tie = found.low <= 1.0 <= found.high or abs(found.median - 1.0) <= self.noise
        verdict = "tie" if is_tie else "faster" if found.median > 1.0 else "slower"
        return {
            "ratio": found.median,
            "low": found.low,
            "high": found.high,
            "verdict": verdict,
        }


def time_in_turn(
    samplers: Mapping[str, Sampler], turns: Turns, clock_mhz: Callable[[], float | None]
) -> Timed:
    """Sample everything in turn, and the clock between."""
    taken: dict[str, list[list[float]]] = {name: [] for name in samplers}
    clocks: list[float] = []
    if turns.modelled:
        for name, sampler in samplers.items():
            taken[name].append(sampler.sample_us(1))
        return _timed(taken, clocks, turns)
    for sampler in samplers.values():
        warm_up(sampler.sample_us, sampler.launches, turns.warm_up_us)
    started = time.monotonic()
    for number in range(turns.most_rounds):
        for name, sampler in samplers.items():
            taken[name].append(sampler.sample_us(turns.samples))
        clock = clock_mhz()
        if clock is not None:
            clocks.append(clock)
        if number + 1 < turns.least_rounds:
            continue
        is_known = all(summarise([*chain(*r)]).is_within(turns.tolerance) for r in taken.values())
        if is_known or time.monotonic() - started > turns.most_s:
            break
    return _timed(taken, clocks, turns)


def _timed(taken: Mapping[str, list[list[float]]], clocks: list[float], turns: Turns) -> Timed:
    columns = {}
    for name, rounds in taken.items():
        samples = [*chain(*rounds)]
        summary = summarise(samples)
        columns[name] = {
            "median_us": summary.median,
            "low_us": summary.low,
            "high_us": summary.high,
            "samples": len(samples),
        }
    return Timed(
        form={"columns": columns, "clocks_mhz": clocks},
        medians={name: [median(one) for one in rounds] for name, rounds in taken.items()},
        noise=turns.noise,
    )
