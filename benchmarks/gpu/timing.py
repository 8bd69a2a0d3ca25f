"""Times several things in turn, A B A B, in one process, and says which of two is faster.

Ours and the vendor's are launched by the same C++ (`profiler/plan.cu`): the L2 cache is emptied,
an event is recorded, launches follow, and another event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from boltgen.measure.protocol import Policy
from boltgen.measure.stats import summarise
from boltgen.measure.timing import warm_up
from boltgen.measure.worker import MOST_SETS_BYTES


class Sampler(Protocol):
    """What can be timed; `launches` of it are one sample."""

    launches: int

    def sample_us(self, samples: int) -> list[float]:
        """Times of one launch, in microseconds."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How long things are timed in turn. `modelled`: one sample, which is the same every time.

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
    """How many copies of operands of that size a sample's launches have, as in all measuring."""
    return max(1, min(most, Policy().most_sets, MOST_SETS_BYTES // max(size_bytes, 1)))


def time_in_turn(
    samplers: Mapping[str, Sampler], turns: Turns, clock_mhz: Callable[[], float | None]
) -> dict[str, Any]:
    """Samples of everything by name, and the clocks seen between them.

    The form of a result: `{"columns": {name: {"median_us": ...}}, "clocks_mhz": [...], "rounds": n,
    "medians": {name: [one for each round]}}`.
    """
    if turns.modelled:
        taken = {name: [sampler.sample_us(1)] for name, sampler in samplers.items()}
        return _form(taken, [])
    for sampler in samplers.values():
        warm_up(sampler.sample_us, sampler.launches, turns.warm_up_us)
    taken = {name: [] for name in samplers}
    clocks: list[float] = []
    started = time.monotonic()
    for number in range(turns.most_rounds):
        for name, sampler in samplers.items():
            taken[name].append(sampler.sample_us(turns.samples))
        clock = clock_mhz()
        if clock is not None:
            clocks.append(clock)
        if number + 1 < turns.least_rounds:
            continue
        if time.monotonic() - started > turns.most_s or _is_enough(taken, turns.tolerance):
            break
    return _form(taken, clocks)


def _is_enough(taken: Mapping[str, Sequence[Sequence[float]]], tolerance: float) -> bool:
    return all(summarise(_flat(rounds)).is_within(tolerance) for rounds in taken.values())


def _flat(rounds: Sequence[Sequence[float]]) -> list[float]:
    return [sample for one in rounds for sample in one]


def _form(taken: Mapping[str, Sequence[Sequence[float]]], clocks: list[float]) -> dict[str, Any]:
    columns = {}
    for name, rounds in taken.items():
        summary = summarise(_flat(rounds))
        columns[name] = {
            "median_us": summary.median,
            "low_us": summary.low,
            "high_us": summary.high,
            "samples": len(_flat(rounds)),
        }
    return {
        "columns": columns,
        "clocks_mhz": clocks,
        "medians": {name: [median(one) for one in rounds] for name, rounds in taken.items()},
    }


def compare(timed: dict[str, Any], ours: str, other: str, turns: Turns) -> dict[str, Any]:
    """How much faster `ours` is than `other`: the ratio of their times, round by round.

    The interval is that of the rounds' median ratio. A ratio whose interval has 1 in it, or that
    is within `turns.noise` of 1, is a tie.
    """
    pairs = zip(timed["medians"][other], timed["medians"][ours], strict=True)
    ratios = summarise([theirs / own for theirs, own in pairs])
    if ratios.low <= 1.0 <= ratios.high or abs(ratios.median - 1.0) <= turns.noise:
        verdict = "tie"
    else:
        verdict = "faster" if ratios.median > 1.0 else "slower"
    return {
        "ratio": ratios.median,
        "low": ratios.low,
        "high": ratios.high,
        "verdict": verdict,
    }
