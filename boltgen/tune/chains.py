"""Decides which layers of a chain become one kernel. Arrow: `tune.select`, before regions exist.

Fusing saves launches and the traffic of intermediates, and costs occupancy and reuse: Bolt,
section 5, finds that it slows compute-bound layers down. All cuts of a sequence are compared, by
dynamic programming over the predicted times of its parts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.chain import Chain, ChainLayer, Cut, chain_of, execution_chain, intermediate_bytes
from boltgen.ir.dtypes import DType
from boltgen.space.config import B2bConfig
from boltgen.space.kernel import execution_problem
from boltgen.tune.chain_model import best_chain_config
from boltgen.tune.select import CostSource, ModelCosts

# Two predictions are compared: a fused kernel must be better by this share. A choice.
_MARGIN = 0.05
_ORIGIN = "predicted by the analytical model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDecision:
    """The configuration chosen for a chain, its time, and where that comes from, in words."""

    chain: Chain
    config: B2bConfig
    time_us: float
    origin: str


def decide_chain(chain: Chain, arch: Arch) -> ChainDecision:
    """The best configuration of a chain that is one kernel.

    Raises:
        NoLegalConfigError: there is none.
    """
    config, predicted = best_chain_config(execution_chain(chain), arch)
    return ChainDecision(
        chain=execution_chain(chain), config=config, time_us=predicted.time_us, origin=_ORIGIN
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Layers `begin` to `end` as one kernel: its predicted time, or why there is none."""

    begin: int
    end: int
    time_us: float | None
    why_not: str = ""


def cut_chain(layers: tuple[ChainLayer, ...], arch: Arch, accumulate: DType = DType.F32) -> Cut:
    """The cut of `layers` with the least predicted time for all of them.

    Single layers and chains are both predicted by the analytical model: a measured time and a
    predicted one do not compare. Products are summed in `accumulate`.

    Raises:
        NoLegalConfigError: a layer alone has no legal configuration.
    """
    summed = tuple(
        replace(layer, problem=replace(layer.problem, acc_dtype=accumulate)) for layer in layers
    )
    return _cut(summed, arch)


@lru_cache(maxsize=1024)
def _cut(layers: tuple[ChainLayer, ...], arch: Arch) -> Cut:
    source = ModelCosts(arch)
    count = len(layers)
    parts = {
        (begin, end): _part(layers, begin, end, arch, source)
        for begin in range(count)
        for end in range(begin + 1, count + 1)
    }
    # best[end]: the least time of the layers before `end`, and where the last part begins.
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, count + 1):
        best.append(
            min(
                (best[begin][0] + _weighed_us(parts[begin, end]), begin)
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


def _weighed_us(part: _Part) -> float:
    if part.time_us is None:
        raise AssertionError("a part without a time is no candidate")
    return part.time_us * (1.0 + _MARGIN) if part.end - part.begin > 1 else part.time_us


def _part(
    layers: tuple[ChainLayer, ...], begin: int, end: int, arch: Arch, source: CostSource
) -> _Part:
    if end - begin == 1:
        layer = layers[begin]
        costs = source.costs(execution_problem(layer.problem), layer.epilogue).by_config
        times = [cost for cost in costs.values() if isinstance(cost, float)]
        return _Part(begin=begin, end=end, time_us=min(times))
    try:
        _, predicted = best_chain_config(_executed(layers[begin:end]), arch)
    except NoLegalConfigError as error:
        return _Part(begin=begin, end=end, time_us=None, why_not=str(error))
    return _Part(begin=begin, end=end, time_us=predicted.time_us)


def _executed(layers: tuple[ChainLayer, ...]) -> Chain:
    return execution_chain(chain_of(layers))


def _reasons(
    layers: tuple[ChainLayer, ...], parts: dict[tuple[int, int], _Part], chosen: list[_Part]
) -> list[str]:
    """A sentence for each joint: within a chosen part, then between it and the next."""
    reasons = []
    for part, following in zip(chosen, [*chosen[1:], None], strict=True):
        apart_us = sum(_weighed_us(parts[i, i + 1]) for i in range(part.begin, part.end))
        if part.end - part.begin > 1 and part.time_us is not None:
            saved = intermediate_bytes(chain_of(layers[part.begin : part.end]))
            fused = (
                f"one kernel for {part.end - part.begin} products: {part.time_us:.1f} us against "
                f"{apart_us:.1f} us apart, {2 * saved / 1e6:.1f} MB less traffic, predicted by the "
                "analytical model"
            )
            reasons += [fused] + [""] * (part.end - part.begin - 2)
        if following is not None:
            reasons.append(_why_apart(parts, part, following))
    return reasons


def _why_apart(parts: dict[tuple[int, int], _Part], part: _Part, following: _Part) -> str:
    joined = parts[part.begin, following.end]
    if joined.time_us is None:
        return f"not one kernel with the product that follows: {joined.why_not}"
    apart_us = _weighed_us(part) + _weighed_us(following)
    return (
        f"not one kernel with the product that follows: {joined.time_us:.1f} us against "
        f"{apart_us:.1f} us apart, predicted by the analytical model"
    )
