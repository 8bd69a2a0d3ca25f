"""Arrow: from the trials of a model's workloads to their tuning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from boltgen.artifact.metadata import Metadata
from boltgen.problems.problem import describe
from boltgen.problems.workload import Workload
from boltgen.report.facts import TimeKind

# The size of a curve's figure, with a margin for the line's width.
CURVE_WIDTH, CURVE_HEIGHT = 240.0, 44.0
_MARGIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A trial: the device's name, the kind of its time, and the time; None if it failed."""

    device: str
    kind: TimeKind
    time_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The best time of a workload after each trial, from the first timed trial to the last.

    A curve is of one device and one kind of time. `found_at` is the number of the best trial;
    `line` has the corners of the figure.
    """

    problem: str
    device: str
    kind: TimeKind
    trials: int
    failures: int
    first_us: float
    best_us: float
    found_at: int
    line: tuple[tuple[float, float], ...]


def workloads_of(metadata: Metadata) -> tuple[Workload, ...]:
    """Return the workloads of the model's kernels without repetitions, in the kernels' order."""
    trials = (trial for kernel in metadata.kernels for trial in kernel.trials)
    return tuple(dict.fromkeys(trial.workload for trial in trials))


def curves(history: Mapping[Workload, Sequence[Attempt]]) -> tuple[Curve, ...]:
    """Return a curve for each workload, device and kind of time, from attempts in order."""
    found = []
    for workload, attempts in history.items():
        problem = "; ".join(describe(layer.problem) for layer in workload.layers)
        for device, kind in dict.fromkeys((each.device, each.kind) for each in attempts):
            times = [
                each.time_us for each in attempts if (each.device, each.kind) == (device, kind)
            ]
            curve = _curve(problem, device, kind, times)
            if curve is not None:
                found.append(curve)
    return tuple(found)


def _curve(
    problem: str, device: str, kind: TimeKind, times: Sequence[float | None]
) -> Curve | None:
    known = [(number, us) for number, us in enumerate(times, 1) if us is not None]
    if not known:
        return None
    bests = list(accumulate((us for _, us in known), min))
    best_us = bests[-1]
    return Curve(
        problem=problem,
        device=device,
        kind=kind,
        trials=len(times),
        failures=len(times) - len(known),
        first_us=bests[0],
        best_us=best_us,
        found_at=next(number for number, us in known if us == best_us),
        line=_line([number for number, _ in known], bests, len(times)),
    )


def _line(
    numbers: Sequence[int], bests: Sequence[float], trials: int
) -> tuple[tuple[float, float], ...]:
    """Return steps from the first best time, at the top, to the last, at the bottom."""
    span = (bests[0] - bests[-1]) or 1.0

    def at(number: int, best_us: float) -> tuple[float, float]:
        x = _MARGIN + (number - 1) / max(trials - 1, 1) * (CURVE_WIDTH - 2 * _MARGIN)
        share = (best_us - bests[-1]) / span
        y = CURVE_HEIGHT - _MARGIN - share * (CURVE_HEIGHT - 2 * _MARGIN)
        return round(x, 1), round(y, 1)

    corners = [at(numbers[0], bests[0])]
    for number, before, best_us in zip(numbers[1:], bests, bests[1:], strict=False):
        if best_us < before:
            corners += [at(number, before), at(number, best_us)]
    return (*corners, at(trials, bests[-1]))
