"""Fits the cost model's constants of an architecture to measurements of it.

    python -m benchmarks.fit_cost_model RECORDS.jsonl... [--write] [--check]

`boltgen db export` writes the records, which were measured on GPUs. The fit minimises how much
slower the model's pick is than the fastest, every problem with the same weight, within the bounds
of each constant; and, with less weight, how far off the time of each family's fastest is. Least
squares on all times explains the slow kernels, of which there are many, at the expense of the fast.
Cross-validation leaves problems out, whole: its figures are for problems
that the fit has not seen. A constant that changes no pick keeps its value and its origin.

--check reports on the shipped constants and fits nothing; --write replaces them by the fitted ones,
where these have less regret on problems that they have not seen, by a twentieth or more.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.model_report import ModelReport, evaluate, model_cost, predicted_us
from benchmarks.record import write as write_result
from boltgen.errors import RecordError
from boltgen.families.constants import (
    NAMES,
    PATH,
    Constant,
    ModelConstants,
    described,
    values_of,
)
from boltgen.intake.json_text import read_json
from boltgen.ir.outcome import DeviceKind
from boltgen.tuning.choice.examples import arch_of, measured_us, timed
from boltgen.tuning.database.exchange import read_records
from boltgen.tuning.database.records import Record

SOURCED = "source:"
FOLDS = 5
TARGET = "regret of the model's pick 5 % on average, fastest among its first ten"
# Predictions that are no more apart are a toss-up, of which the loss is the mean: so it tells two
# settings apart that pick the same.
_TOSS_UP = 0.05
# A search along one constant after the other: the model is not smooth in them.
_FACTORS = (2.0, 1.3, 1.1)
_LEAST_GAIN = 1e-5
# The weight of how far off each family's fastest is, beside that of a wrong pick.
_WEIGHT_OF_TIME = 0.2
# Fitted constants are shipped whose regret on unseen problems is at most this part of the shipped
# ones': what is less of a gain than that changes with the folds.
_MOST_REGRET = 0.95


@dataclass(frozen=True)
class Fit:
    """Fitted constants; `loss` is that of `ranking_loss` and, weighed, of `time_loss`."""

    constants: dict[str, Constant]
    loss: float


def usable(records: Sequence[Record]) -> list[Record]:
    """GPUs' measurements: modelled and replayed times are no evidence."""
    return timed(record for record in records if record.device.kind is DeviceKind.CUDA)


def fit(records: Sequence[Record], start: dict[str, Constant], origin: str) -> Fit:
    """The constants that rank the records best, from `start`; `origin` is written beside them.

    Raises:
        RecordError: there are fewer measurements than constants to fit.
    """
    free = [name for name in NAMES if not start[name].origin.startswith(SOURCED)]
    if len(records) <= len(free):
        raise RecordError(f"{len(records)} measurements cannot fit {len(free)} constants")
    samples = [(record.trial, arch_of(record.device)) for record in records]
    measured = np.log([measured_us(record) for record in records])
    groups, of_family = _by_problem(records), _by_problem(records, of_family=True)

    def loss(constants: ModelConstants) -> float:
        predicted = np.log([predicted_us(trial, arch, constants) for trial, arch in samples])
        off = time_loss(predicted, measured, of_family)
        return ranking_loss(predicted, measured, groups) + _WEIGHT_OF_TIME * off

    values = values_of(start)
    least = loss(values)
    for factor in _FACTORS:
        improved = True
        while improved:
            improved = False
            for name, step in itertools.product(free, (factor, 1 / factor)):
                value = getattr(values, name) * step
                moved = replace(
                    values, **{name: min(max(value, start[name].low), start[name].high)}
                )
                if (found := loss(moved)) < least - _LEAST_GAIN:
                    values, least, improved = moved, found, True
    fitted = {name: getattr(values, name) for name in free}
    constants = {
        name: replace(constant, value=fitted[name], origin=origin)
        if name in fitted and fitted[name] != constant.value
        else constant
        for name, constant in start.items()
    }
    return Fit(constants=constants, loss=least)


def ranking_loss(
    predicted: NDArray[np.float64], measured: NDArray[np.float64], groups: Sequence[list[int]]
) -> float:
    """The mean over problems of how much longer the pick takes, all as logarithms of times.

    What is predicted to be nearly as fast as the pick counts by how near it is.
    """
    losses = []
    for members in groups:
        behind = predicted[members] - predicted[members].min()
        weights = np.exp(-behind / _TOSS_UP)
        slower = measured[members] - measured[members].min()
        losses.append(float((weights * slower).sum() / weights.sum()))
    return float(np.mean(losses))


def time_loss(
    predicted: NDArray[np.float64], measured: NDArray[np.float64], groups: Sequence[list[int]]
) -> float:
    """The mean over groups of how far off the fastest's predicted time is, in logarithms."""
    fastest = [members[int(np.argmin(measured[members]))] for members in groups]
    return float(np.abs(predicted[fastest] - measured[fastest]).mean())


def _by_problem(records: Sequence[Record], *, of_family: bool = False) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        trial = record.trial
        groups[trial.workload, trial.config.family if of_family else ""].append(index)
    return list(groups.values())


def cross_validate(
    records: Sequence[Record], start: dict[str, Constant], folds: int = FOLDS
) -> list[tuple[ModelReport, ModelReport]]:
    """Reports on the problems that each of `folds` fits has not seen: of `start`, of the fit."""
    groups = _by_problem(records)
    parts = [
        {index for group in groups[fold::folds] for index in group}
        for fold in range(min(folds, len(groups)))
    ]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(partial(_unseen, records, start), parts))


def _unseen(
    records: Sequence[Record], start: dict[str, Constant], held: set[int]
) -> tuple[ModelReport, ModelReport]:
    """Reports on the records `held` back, of `start` and of what the others fit."""
    seen = [record for index, record in enumerate(records) if index not in held]
    fitted = fit(seen, start, "cross-validation").constants
    unseen = [records[index] for index in sorted(held)]
    before, after = (evaluate(unseen, model_cost(values_of(c))) for c in (start, fitted))
    return before, after


def mean_regret(reports: Sequence[ModelReport]) -> float:
    """Return the mean regret of all problems in the reports; infinite if none can be ranked."""
    regrets = [ranking.regret for report in reports for ranking in report.rankings]
    return float(np.mean(regrets)) if regrets else float("inf")


def figures_of(report: ModelReport) -> dict[str, Any]:
    """A report as it is kept."""
    return {
        "measurements": report.measurements,
        "problems": len(report.rankings),
        "rank_correlation": report.rank_correlation,
        "median_rank_correlation_of_problems": report.median_rank_correlation,
        "mean_regret": report.mean_regret,
        "worst_regret": report.worst_regret,
        "log_error": report.log_error,
        "recall": {str(top): share for top, share in report.recall.items()},
    }


def run(
    paths: Sequence[Path], *, check: bool
) -> tuple[dict[str, Any], dict[str, dict[str, Constant]]]:
    """The figures to keep, and the constants to ship, by architecture.

    Raises:
        RecordError: a file cannot be read, or there are no measurements of a GPU in them.
    """
    records = usable([record for path in paths for record in read_records(path)])
    if not records:
        raise RecordError(
            f"no measurements of a GPU in {', '.join(map(str, paths))}: export some with "
            "`boltgen db export` where there is one"
        )
    of_arch: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        of_arch[arch_of(record.device).name].append(record)
    names = ", ".join(path.name for path in paths)
    figures: dict[str, Any] = {}
    constants: dict[str, dict[str, Constant]] = {}
    for arch, found in sorted(of_arch.items()):
        figures[arch], constants[arch] = _of_arch(arch, found, names, check=check)
    return figures, constants


def _of_arch(
    arch: str, records: Sequence[Record], names: str, *, check: bool
) -> tuple[dict[str, Any], dict[str, Constant]]:
    """Return the figures of an architecture, and its constants; `names` are the files' names."""
    shipped = described(arch)
    devices = sorted({record.device.name for record in records})
    figures: dict[str, Any] = {
        "devices": devices,
        "shipped": figures_of(evaluate(records, model_cost(values_of(shipped)))),
    }
    if check:
        return figures, shipped
    fitted = fit(
        records, shipped, f"fitted: {names} ({', '.join(devices)}), {len(records)} records"
    )
    figures["fitted"] = figures_of(evaluate(records, model_cost(values_of(fitted.constants))))
    before, after = zip(*cross_validate(records, shipped), strict=True)
    figures["unseen_problems"] = {
        "shipped": list(map(figures_of, before)),
        "fitted": list(map(figures_of, after)),
    }
    figures["regret_of_unseen_problems"] = {
        "shipped": mean_regret(before),
        "fitted": mean_regret(after),
    }
    figures["constants"] = {
        name: {"value": fitted.constants[name].value, "was": shipped[name].value} for name in NAMES
    }
    return figures, fitted.constants


def write(constants: Mapping[str, Constant], arch: str = "", path: Path = PATH) -> None:
    """Write constants in the form that `described` reads; with `arch`, only its own values."""
    form = read_json(path)
    if arch:
        shared = described(path=path)
        form["arches"][arch] = {
            name: {"value": constant.value, "origin": constant.origin}
            for name, constant in constants.items()
            if constant.value != shared[name].value
        }
    else:
        form["constants"] = {name: asdict(constant) for name, constant in constants.items()}
    path.write_text(json.dumps(form, indent=2) + "\n", encoding="utf-8")


def keep(figures: dict[str, Any], constants: dict[str, dict[str, Constant]]) -> list[str]:
    """Ship the constants of each architecture if unseen problems gain enough; say so in lines."""
    told = []
    for arch, found in constants.items():
        regret = figures[arch]["regret_of_unseen_problems"]
        better = regret["fitted"] <= _MOST_REGRET * regret["shipped"]
        if better:
            write(found, arch)
        told.append(
            f"the analytical model's constants for {arch} were {'fitted' if better else 'kept'}; "
            f"regret of unseen problems: {regret['shipped']:.4f} before, {regret['fitted']:.4f} "
            "fitted"
        )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="report on the shipped constants")
    parser.add_argument("--write", action="store_true", help="ship the fitted constants")
    options = parser.parse_args()
    figures, constants = run(options.records, check=options.check)
    write_result("fit_cost_model", figures, target=TARGET)
    if options.write and not options.check:
        print("\n".join(keep(figures, constants)))


if __name__ == "__main__":
    main()
