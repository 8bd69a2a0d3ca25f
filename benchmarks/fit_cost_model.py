"""Fits the cost model's constants to measurements, and says how well the model ranks them.

    python -m benchmarks.fit_cost_model RECORDS.jsonl... [--write] [--check]

Records are those of `boltgen db export`, measured on GPUs. Least squares on the logarithm of
predicted over measured time, every problem with the same weight, within the bounds of each
constant. Cross-validation leaves problems out, whole: its figures are those of problems that the
fit has not seen. A constant on which no measurement depends keeps its value and its origin.

--check reports on the shipped constants and fits nothing; --write replaces them by the fitted ones.

scipy is there wherever boltgen is: CUTLASS's package requires it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.record import write as write_result
from boltgen.errors import RecordError
from boltgen.families.constants import NAMES, Constant, described, values_of, write
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.tuning.exchange import read_records
from boltgen.tuning.model_report import (
    ModelReport,
    arch_of,
    evaluate,
    measured_us,
    model_cost,
    predicted_us,
    timed,
)
from boltgen.tuning.outcome import DeviceKind
from boltgen.tuning.records import Record

SOURCED = "source:"
FOLDS = 5
# The model is not smooth: differences are taken over a step that rounding does not touch.
_STEP = 1e-3
# Below this, a change of a constant by a factor of e moves no time by a thousandth.
_UNDETERMINED = 1e-3


@dataclass(frozen=True)
class Fit:
    """Fitted constants; `standard_errors` are of their logarithms, None where undetermined."""

    constants: dict[str, Constant]
    standard_errors: dict[str, float | None]
    log_error: float


def usable(records: Sequence[Record]) -> list[Record]:
    """GPUs' measurements of single products: modelled and replayed times are no evidence."""
    return timed(
        record
        for record in records
        if record.device.kind is DeviceKind.CUDA
        if isinstance(record.trial.config, Cutlass2Config)
    )


def fit(records: Sequence[Record], start: dict[str, Constant], origin: str) -> Fit:
    """The constants that explain the records best, from `start`; `origin` is written beside them.

    Raises:
        RecordError: there are fewer measurements than constants to fit.
    """
    free = [name for name in NAMES if not start[name].origin.startswith(SOURCED)]
    if len(records) <= len(free):
        raise RecordError(f"{len(records)} measurements cannot fit {len(free)} constants")
    samples = [(record.trial, arch_of(record.device)) for record in records]
    measured = np.log([measured_us(record) for record in records])
    weights = _weights(records)
    shipped = values_of(start)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = replace(shipped, **dict(zip(free, np.exp(logs).tolist(), strict=True)))
        times = [predicted_us(trial, arch, constants) for trial, arch in samples]
        weighted: NDArray[np.float64] = weights * (np.log(times) - measured)
        return weighted

    low, high = (np.log([getattr(start[name], side) for name in free]) for side in ("low", "high"))
    begin = np.clip(np.log([start[name].value for name in free]), low + 1e-9, high - 1e-9)
    found = least_squares(
        residuals, begin, bounds=(low, high), diff_step=_STEP, x_scale=1.0, method="trf"
    )
    errors = _standard_errors(found.jac, found.fun, found.x, (low, high), len(records))
    constants = dict(start)
    for name, log, error in zip(free, found.x, errors, strict=True):
        if error is not None:
            constants[name] = replace(start[name], value=float(np.exp(log)), origin=origin)
    return Fit(
        constants=constants,
        standard_errors=dict(zip(free, errors, strict=True)),
        log_error=float(np.sqrt(np.sum(found.fun**2) / np.sum(weights**2))),
    )


def _weights(records: Sequence[Record]) -> NDArray[np.float64]:
    """Such that all problems weigh alike, and the sum of squares stays the number of records."""
    groups = _by_problem(records)
    weights = np.zeros(len(records))
    for members in groups:
        weights[members] = np.sqrt(len(records) / len(groups) / len(members))
    return weights


def _by_problem(records: Sequence[Record]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        groups[record.trial.problem, record.trial.epilogue].append(index)
    return list(groups.values())


def _standard_errors(
    jacobian: NDArray[np.float64],
    residuals: NDArray[np.float64],
    place: NDArray[np.float64],
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    count: int,
) -> list[float | None]:
    """Of each fitted logarithm, by the linearised model; None where the records do not tell it.

    A constant that the fit pressed against a bound has no spread of that kind: 0.
    """
    errors: list[float | None] = [None] * len(place)
    told = np.max(np.abs(jacobian), axis=0) > _UNDETERMINED
    inside = (place - bounds[0] > 1e-6) & (bounds[1] - place > 1e-6)
    fitted = np.flatnonzero(told & inside)
    for index in np.flatnonzero(told & ~inside):
        errors[index] = 0.0
    if len(fitted):
        variance = float(np.sum(residuals**2)) / max(count - len(fitted), 1)
        columns = jacobian[:, fitted]
        covariance = variance * np.linalg.pinv(columns.T @ columns)
        for index, error in zip(fitted, np.sqrt(np.diag(covariance)), strict=True):
            errors[index] = float(error)
    return errors


def cross_validate(
    records: Sequence[Record], start: dict[str, Constant], folds: int = FOLDS
) -> list[ModelReport]:
    """Reports on the problems that each of `folds` fits has not seen."""
    groups = _by_problem(records)
    reports = []
    for fold in range(min(folds, len(groups))):
        held = {index for group in groups[fold::folds] for index in group}
        seen = [record for index, record in enumerate(records) if index not in held]
        fitted = fit(seen, start, "cross-validation")
        unseen = [records[index] for index in sorted(held)]
        reports.append(evaluate(unseen, model_cost(values_of(fitted.constants))))
    return reports


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


def run(paths: Sequence[Path], *, check: bool) -> tuple[dict[str, Any], dict[str, Constant]]:
    """The figures to keep, and the constants to ship.

    Raises:
        RecordError: a file cannot be read, or there are no measurements of a GPU in them.
    """
    records = usable([record for path in paths for record in read_records(path)])
    if not records:
        raise RecordError(
            f"no measurements of a GPU in {', '.join(map(str, paths))}: export some with "
            "`boltgen db export` where there is one"
        )
    shipped = described()
    devices = sorted({record.device.name for record in records})
    figures: dict[str, Any] = {
        "devices": devices,
        "shipped": figures_of(evaluate(records, model_cost(values_of(shipped)))),
    }
    if check:
        return figures, shipped
    names = ", ".join(path.name for path in paths)
    fitted = fit(
        records, shipped, f"fitted: {names} ({', '.join(devices)}), {len(records)} records"
    )
    figures["fitted"] = figures_of(evaluate(records, model_cost(values_of(fitted.constants))))
    figures["unseen_problems"] = list(map(figures_of, cross_validate(records, shipped)))
    figures["constants"] = {
        name: {
            "value": fitted.constants[name].value,
            "was": shipped[name].value,
            "standard_error_of_log": fitted.standard_errors.get(name),
        }
        for name in NAMES
    }
    return figures, fitted.constants


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="report on the shipped constants")
    parser.add_argument("--write", action="store_true", help="ship the fitted constants")
    options = parser.parse_args()
    figures, constants = run(options.records, check=options.check)
    target = "regret of the model's pick 5 % on average, fastest among its first ten"
    write_result("fit_cost_model", figures, target=target)
    if options.write:
        write(constants)


if __name__ == "__main__":
    main()
