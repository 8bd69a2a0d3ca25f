"""Decides which layers of a chain become one kernel. Arrow: `tune.select`, before regions exist.

Fusing saves launches and the traffic of intermediates, and costs occupancy and reuse: Bolt,
section 5, finds that it slows compute-bound layers down. All cuts of a sequence are compared, by
dynamic programming over the times of its parts: measured ones where a device has timed every layer
by itself, else predicted ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import (
    AnyProblem,
    Chain,
    ChainLayer,
    Cut,
    chain_of,
    execution_chain,
    intermediate_bytes,
    plain,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Problem
from boltgen.space.config import AnyConfig, B2bConfig
from boltgen.space.kernel import execution_problem
from boltgen.tune.chain_model import best_chain_config
from boltgen.tune.outcome import Failure, Outcome, Timing
from boltgen.tune.select import MODEL_ORIGIN, Measurements, ModelCosts

# A predicted time is compared: a fused kernel must be better by this share. A choice.
_MARGIN = 0.05
# A chain whose predicted time is this many times that of its layers is not worth a compiler's: the
# model's error is far less. A choice.
_HOPELESS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDecision:
    """The configuration chosen for a chain, its time, and where that comes from, in words."""

    chain: Chain
    config: B2bConfig
    time_us: float
    origin: str


def decide_chain(
    chain: Chain, arch: Arch, measurements: Sequence[Measurements] = ()
) -> ChainDecision:
    """The best configuration of a chain that is one kernel: of what was measured, else predicted.

    Raises:
        NoLegalConfigError: there is none.
    """
    executed = execution_chain(chain)
    failed: set[B2bConfig] = set()
    for known in measurements:
        outcomes = _outcomes(known, executed)
        timed = [(o.median_us, c) for c, o in outcomes.items() if isinstance(o, Timing)]
        if timed:
            time_us, config = min(timed)
            return ChainDecision(
                chain=executed, config=config, time_us=time_us, origin=known.origin
            )
        failed.update(outcomes)
    config, predicted = best_chain_config(executed, arch, without=failed)
    return ChainDecision(
        chain=executed, config=config, time_us=predicted.time_us, origin=MODEL_ORIGIN
    )


def candidate_chains(
    layers: tuple[ChainLayer, ...], arch: Arch, accumulate: DType = DType.F32
) -> tuple[Chain, ...]:
    """The parts of a sequence that are worth timing as one kernel, as they run.

    Products are summed in `accumulate`.

    Raises:
        NoLegalConfigError: a layer alone has no legal configuration.
    """
    summed = _summed(layers, accumulate)
    found = []
    for begin, end in itertools.combinations(range(len(summed) + 1), 2):
        part = summed[begin:end]
        if len(part) == 1:
            continue
        predicted = predicted_us(part, arch)
        if isinstance(predicted, float) and predicted <= _HOPELESS * _apart_us(part, arch):
            found.append(_executed(part))
    return tuple(found)


def cut_chain(
    layers: tuple[ChainLayer, ...],
    arch: Arch,
    accumulate: DType = DType.F32,
    measurements: Sequence[Measurements] = (),
) -> Cut:
    """The cut of `layers` with the least time for all of them.

    Times are those of the first of `measurements` that has timed every layer by itself, else the
    analytical model's. A chain that such a device has not timed is taken to need that share of its
    layers' time which the model says; one whose kernels all failed there is cut. Products are
    summed in `accumulate`.

    Raises:
        NoLegalConfigError: a layer alone has no legal configuration.
    """
    summed = _summed(layers, accumulate)
    parts = _parts(summed, arch, measurements)
    count = len(summed)
    # best[end]: the least time of the layers before `end`, and where the last part begins.
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
    return Cut(counts=counts, reasons=tuple(_reasons(summed, parts, chosen)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Layers `begin` to `end` as one kernel: its time and where that is from, or why there is none.

    All parts of a sequence have times that compare.
    """

    begin: int
    end: int
    time_us: float | None
    origin: str = ""
    is_measured: bool = False
    why_not: str = ""

    @property
    def is_fused(self) -> bool:
        """Whether it is several layers."""
        return self.end - self.begin > 1

    @property
    def weighed_us(self) -> float:
        """What counts: a prediction of a fused kernel has to be better by a margin."""
        if self.time_us is None:
            raise AssertionError("a part without a time is no candidate")
        has_margin = self.is_fused and not self.is_measured
        return self.time_us * (1.0 + _MARGIN) if has_margin else self.time_us


_Parts = Mapping[tuple[int, int], _Part]


def _parts(
    layers: tuple[ChainLayer, ...], arch: Arch, measurements: Sequence[Measurements]
) -> _Parts:
    spans = list(itertools.combinations(range(len(layers) + 1), 2))
    for known in measurements:
        alone_us = [measured_us(known, (layer,)) for layer in layers]
        timed_us = [time_us for time_us in alone_us if time_us is not None]
        if len(timed_us) == len(layers):
            return {span: _measured_part(layers, span, arch, known, timed_us) for span in spans}
    return {span: _predicted_part(layers, span, arch) for span in spans}


def _predicted_part(layers: tuple[ChainLayer, ...], span: tuple[int, int], arch: Arch) -> _Part:
    predicted = predicted_us(layers[slice(*span)], arch)
    if isinstance(predicted, str):
        return _Part(begin=span[0], end=span[1], time_us=None, why_not=predicted)
    return _Part(begin=span[0], end=span[1], time_us=predicted, origin=MODEL_ORIGIN)


def _measured_part(
    layers: tuple[ChainLayer, ...],
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
    predicted = predicted_us(inside, arch)
    if isinstance(predicted, str):
        return _Part(begin=begin, end=end, time_us=None, why_not=predicted)
    outcomes = list(_outcomes(known, _executed(inside)).values())
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


def measured_us(known: Measurements, layers: tuple[ChainLayer, ...]) -> float | None:
    """The least time that a device has of `layers` as one kernel, or of the single one."""
    problem: AnyProblem = _alone(layers[0])
    epilogue = layers[0].epilogue
    if len(layers) > 1:
        problem, epilogue = _executed(layers), ElementwiseGraph()
    outcomes = known.outcomes(problem, epilogue).values()
    times = [outcome.median_us for outcome in outcomes if isinstance(outcome, Timing)]
    return min(times, default=None)


def _outcomes(known: Measurements, chain: Chain) -> dict[B2bConfig, Outcome]:
    found: Mapping[AnyConfig, Outcome] = known.outcomes(chain, ElementwiseGraph())
    return {config: found[config] for config in found if isinstance(config, B2bConfig)}


@lru_cache(maxsize=4096)
def predicted_us(layers: tuple[ChainLayer, ...], arch: Arch) -> float | str:
    """The analytical model's time of `layers` as one kernel, or why they can be none.

    Raises:
        NoLegalConfigError: a single layer has no legal configuration.
    """
    if len(layers) == 1:
        problem = _alone(layers[0])
        costs = ModelCosts(arch).costs(problem, layers[0].epilogue).by_config
        return min(cost for cost in costs.values() if isinstance(cost, float))
    try:
        return best_chain_config(_executed(layers), arch)[1].time_us
    except NoLegalConfigError as error:
        return str(error)


def _apart_us(layers: tuple[ChainLayer, ...], arch: Arch) -> float:
    """The analytical model's time of `layers`, each a kernel of its own."""
    alone = (predicted_us((layer,), arch) for layer in layers)
    return sum(time_us for time_us in alone if isinstance(time_us, float))


def _summed(layers: tuple[ChainLayer, ...], accumulate: DType) -> tuple[ChainLayer, ...]:
    return tuple(
        replace(layer, problem=replace(layer.problem, acc_dtype=accumulate)) for layer in layers
    )


def _executed(layers: tuple[ChainLayer, ...]) -> Chain:
    return execution_chain(chain_of(plain(layers)))


def _alone(layer: ChainLayer) -> Problem:
    """What really runs for a layer that is a kernel of its own."""
    (alone,) = plain((layer,))
    return execution_problem(alone.problem)


def _reasons(layers: tuple[ChainLayer, ...], parts: _Parts, chosen: list[_Part]) -> list[str]:
    """A sentence for each joint: within a chosen part, then between it and the next."""
    reasons = []
    for part, following in zip(chosen, [*chosen[1:], None], strict=True):
        if part.is_fused:
            apart = [parts[i, i + 1] for i in range(part.begin, part.end)]
            saved = intermediate_bytes(chain_of(layers[part.begin : part.end]))
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
