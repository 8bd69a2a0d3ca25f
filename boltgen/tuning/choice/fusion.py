"""Decide which layers become one kernel. Arrow: `tune.select`, before regions exist.

Fusion saves launches and the traffic of intermediates, but costs occupancy and reuse: Bolt, section
5, finds that it slows compute-bound layers down. All cuts of a sequence are compared by dynamic
programming over the times of its parts, which are measured if a device has timed every layer alone,
else predicted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.outcome import Failure, Timing
from boltgen.problems.workload import Cut, Layer, Workload
from boltgen.tuning.choice.select import Measurements, ModelCosts

# A fused kernel with a predicted time must be better by this share. A choice.
_MARGIN = 0.05
# A fused kernel whose predicted time is this many times its layers' time is not compiled: the
# model's error is far smaller. A choice.
_HOPELESS = 2.0


def candidate_fusions(layers: tuple[Layer, ...], arch: Arch) -> tuple[Workload, ...]:
    """Return the parts of a sequence that are worth timing as one kernel.

    Raises:
        NoLegalConfigError: a layer alone has no legal configuration.
    """
    found = []
    for begin, end in itertools.combinations(range(len(layers) + 1), 2):
        part = layers[begin:end]
        if len(part) == 1:
            continue
        predicted = _predicted_us(part, arch)
        if isinstance(predicted, float) and predicted <= _HOPELESS * _apart_us(part, arch):
            found.append(Workload(layers=part))
    return tuple(found)


def cut_layers(
    layers: tuple[Layer, ...], arch: Arch, measurements: Sequence[Measurements] = ()
) -> Cut:
    """Return the cut of `layers` with the least total time.

    The times come from the first of `measurements` that has timed every layer alone, else from the
    analytical model. If that device has not timed a fused kernel, its time is estimated: the
    layers' times, scaled by the predicted ratio. A fused kernel whose configurations all failed
    there is not used.

    Raises:
        NoLegalConfigError: a layer alone has no legal configuration.
    """
    parts = _parts(layers, arch, measurements)
    count = len(layers)
    # best[end]: the least time of the layers before `end`, and the beginning of the last part.
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, count + 1):
        best.append(
            min(
                (best[begin][0] + parts[begin, end].weighed_us, begin)
                for begin in range(end)
                if parts[begin, end].time_us is not None
            )
        )
    cuts = [count]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    cuts.reverse()
    counts = tuple(end - begin for begin, end in itertools.pairwise(cuts))
    chosen = [parts[begin, end] for begin, end in itertools.pairwise(cuts)]
    return Cut(counts=counts, reasons=tuple(_reasons(layers, parts, chosen)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Layers `begin` to `end` as one kernel, with its time and origin, or why it has none.

    The times of all parts of a sequence are comparable.
    """

    begin: int
    end: int
    time_us: float | None
    origin: str = ""
    is_measured: bool = False
    why_not: str = ""

    @property
    def is_fused(self) -> bool:
        """Whether the part has several layers."""
        return self.end - self.begin > 1

    @property
    def weighed_us(self) -> float:
        """The time for comparisons: a predicted time of a fused kernel is increased by a margin."""
        if self.time_us is None:
            raise AssertionError("a part without a time is no candidate")
        has_margin = self.is_fused and not self.is_measured
        return self.time_us * (1.0 + _MARGIN) if has_margin else self.time_us


_Parts = Mapping[tuple[int, int], _Part]


def _parts(layers: tuple[Layer, ...], arch: Arch, measurements: Sequence[Measurements]) -> _Parts:
    spans = list(itertools.combinations(range(len(layers) + 1), 2))
    for known in measurements:
        alone_us = [measured_us(known, Workload(layers=(layer,))) for layer in layers]
        timed_us = [time_us for time_us in alone_us if time_us is not None]
        if len(timed_us) == len(layers):
            return {span: _measured_part(layers, span, arch, known, timed_us) for span in spans}
    return {span: _predicted_part(layers, span, arch) for span in spans}


def _predicted_part(layers: tuple[Layer, ...], span: tuple[int, int], arch: Arch) -> _Part:
    predicted = _predicted_us(layers[slice(*span)], arch)
    if isinstance(predicted, str):
        return _Part(begin=span[0], end=span[1], time_us=None, why_not=predicted)
    return _Part(begin=span[0], end=span[1], time_us=predicted, origin=ModelCosts(arch).origin)


def _measured_part(
    layers: tuple[Layer, ...],
    span: tuple[int, int],
    arch: Arch,
    known: Measurements,
    alone_us: Sequence[float],
) -> _Part:
    (begin, end), inside = span, layers[slice(*span)]
    apart_us = sum(alone_us[begin:end])
    timed = _Part(begin=begin, end=end, time_us=apart_us, origin=known.origin, is_measured=True)
    if not timed.is_fused:
        return timed
    predicted = _predicted_us(inside, arch)
    if isinstance(predicted, str):
        return _Part(begin=begin, end=end, time_us=None, why_not=predicted)
    outcomes = list(known.outcomes(Workload(layers=inside)).values())
    times = [outcome.median_us for outcome in outcomes if isinstance(outcome, Timing)]
    if times:
        return replace(timed, time_us=min(times))
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if failures:
        why_not = (
            f"none of the {len(failures)} kernels that were tried has a time, {known.origin}; the "
            f"first failed with: {failures[0].reason}"
        )
        return _Part(begin=begin, end=end, time_us=None, why_not=why_not)
    return _Part(
        begin=begin,
        end=end,
        time_us=apart_us * predicted / _apart_us(inside, arch),
        origin=f"by what the analytical model says of times {known.origin}",
    )


def measured_us(known: Measurements, workload: Workload) -> float | None:
    """Return the least time of a workload that a device has measured, or None."""
    outcomes = known.outcomes(workload).values()
    times = [outcome.median_us for outcome in outcomes if isinstance(outcome, Timing)]
    return min(times, default=None)


@lru_cache(maxsize=4096)
def predicted_us(workload: Workload, arch: Arch) -> float:
    """Return the analytical model's time of a workload's best configuration.

    Raises:
        NoLegalConfigError: the workload has no legal configuration.
    """
    costs = ModelCosts(arch).costs(workload).by_config.values()
    return min(cost for cost in costs if isinstance(cost, float))


def _predicted_us(layers: tuple[Layer, ...], arch: Arch) -> float | str:
    """Return the analytical model's time of `layers` as one kernel, or why it is impossible.

    Raises:
        NoLegalConfigError: a single layer has no legal configuration.
    """
    if len(layers) == 1:
        return predicted_us(Workload(layers=layers), arch)
    return _fused_us(layers, arch)


@lru_cache(maxsize=4096)
def _fused_us(layers: tuple[Layer, ...], arch: Arch) -> float | str:
    """Return `_predicted_us` for several layers, and cache the time or the reason."""
    try:
        return predicted_us(Workload(layers=layers), arch)
    except NoLegalConfigError as error:
        return str(error)


def _apart_us(layers: tuple[Layer, ...], arch: Arch) -> float:
    """Return the analytical model's time of `layers` as separate kernels."""
    return sum(predicted_us(Workload(layers=(layer,)), arch) for layer in layers)


def _reasons(layers: tuple[Layer, ...], parts: _Parts, chosen: list[_Part]) -> list[str]:
    """Return a sentence for each boundary of two layers: why it is fused, or why not."""
    reasons = []
    for part, following in zip(chosen, [*chosen[1:], None], strict=True):
        if part.is_fused:
            apart = [parts[i, i + 1] for i in range(part.begin, part.end)]
            saved = Workload(layers=layers[part.begin : part.end]).intermediate_bytes
            fused = (
                f"one kernel for {len(apart)} products: {_compared(part, apart)}, "
                f"{2 * saved / 1e6:.1f} MB less traffic, {part.origin}"
            )
            reasons += [fused] + [""] * (len(apart) - 2)
        if following is not None:
            reasons.append(_why_apart(parts[part.begin, following.end], part, following))
    return reasons


def _why_apart(joined: _Part, part: _Part, following: _Part) -> str:
    why = "not one kernel with the product that follows: "
    if joined.time_us is None:
        return why + joined.why_not
    return f"{why}{_compared(joined, [part, following])}, {joined.origin}"


def _compared(joined: _Part, apart: Sequence[_Part]) -> str:
    apart_us = sum(part.time_us for part in apart if part.time_us is not None)
    return f"{joined.time_us:.1f} us against {apart_us:.1f} us apart"
