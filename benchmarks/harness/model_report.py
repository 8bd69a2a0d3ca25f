"""Measure how well a cost model ranks measured configurations: rank correlation, regret, recall.

Regret is the price of trusting the model: the time of its first pick divided by the best measured
time, minus 1. Recall tells how many of its picks must be timed to find the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.families.registry import predict
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.examples import arch_of, measured_us, timed
from boltgen.tuning.database.records import Record

TOP = (1, 5, 10)
# A ranking of fewer configurations of a problem has no value.
_FEWEST = 3

CostUs: TypeAlias = Callable[[Trial, DeviceIdentity], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The model's ranking of the measured configurations of one problem on one device.

    `rank_correlation` is Spearman's. `found_at` is the model's rank of the fastest configuration; 1
    means that the model picks it first.
    """

    workload: Workload
    device: DeviceIdentity
    configurations: int
    rank_correlation: float
    regret: float
    found_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The rankings of all problems together; a field is None if no record contributes to it.

    `rank_correlation` is over all measurements, `median_rank_correlation` the median over problems.
    `log_error` is the root mean square of log(predicted / measured). `recall` is, for each number
    of picks, the share of problems whose fastest configuration is among them.
    """

    measurements: int
    rankings: tuple[Ranking, ...]
    rank_correlation: float | None
    median_rank_correlation: float | None
    mean_regret: float | None
    worst_regret: float | None
    log_error: float | None
    recall: dict[int, float]


def model_cost(constants: ModelConstants | None = None) -> CostUs:
    """Return the analytical model as a function, with `constants` instead of its own if given."""

    def cost_us(trial: Trial, device: DeviceIdentity) -> float:
        return predicted_us(trial, arch_of(device), constants)

    return cost_us


def predicted_us(trial: Trial, arch: Arch, constants: ModelConstants | None = None) -> float:
    """Return the analytical model's time of a launch, in microseconds."""
    return predict(trial.workload, trial.config, arch, constants).time_us


def evaluate(records: Iterable[Record], cost_us: CostUs | None = None) -> ModelReport:
    """Compare `cost_us`, by default the analytical model, with the records that have a time.

    Problems with fewer than three configurations are not ranked.
    """
    cost_us = cost_us or model_cost()
    kept = timed(records)
    measured = np.array([measured_us(record) for record in kept])
    predicted = np.array([cost_us(record.trial, record.device) for record in kept])
    groups: dict[tuple[Workload, DeviceIdentity, str], list[int]] = defaultdict(list)
    for index, record in enumerate(kept):
        trial = record.trial
        groups[trial.workload, record.device, record.toolchain].append(index)
    rankings = tuple(
        _ranking(workload, device, predicted[members], measured[members])
        for (workload, device, _), members in groups.items()
        if len(members) >= _FEWEST
    )
    return ModelReport(
        measurements=len(kept),
        rankings=rankings,
        rank_correlation=rank_correlation(predicted, measured) if len(kept) >= _FEWEST else None,
        median_rank_correlation=_summary(np.median, [r.rank_correlation for r in rankings]),
        mean_regret=_summary(np.mean, [r.regret for r in rankings]),
        worst_regret=_summary(np.max, [r.regret for r in rankings]),
        log_error=_summary(_root_mean_square, np.log(predicted / measured)) if kept else None,
        recall={
            top: float(np.mean([ranking.found_at <= top for ranking in rankings]))
            for top in TOP
            if rankings
        },
    )


def _ranking(
    workload: Workload,
    device: DeviceIdentity,
    predicted: NDArray[np.float64],
    measured: NDArray[np.float64],
) -> Ranking:
    order = np.argsort(predicted, kind="stable")
    best = float(measured.min())
    return Ranking(
        workload=workload,
        device=device,
        configurations=len(measured),
        rank_correlation=rank_correlation(predicted, measured),
        regret=float(measured[order[0]]) / best - 1.0,
        found_at=1 + int(np.argmax(measured[order] == best)),
    )


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Return Spearman's coefficient, the correlation of ranks; 0 if a side has no order."""
    x, y = _ranks(np.asarray(a, np.float64)), _ranks(np.asarray(b, np.float64))
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / spread if spread else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks from 1 on; equal values get the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts).astype(np.float64)
    mean_ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return mean_ranks


def _root_mean_square(values: ArrayLike) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _summary(function: Callable[[NDArray[np.float64]], Any], values: ArrayLike) -> float | None:
    array = np.asarray(values, np.float64)
    return float(function(array)) if array.size else None
