"""Correct the analytical model by boosted trees that were trained on records.

    time = analytical * exp(w * trees(features)),   w = exp(-d^2 / 2)

The trees learn log(measured / predicted). Trees do not extrapolate, so their weight w falls with d,
the number of doublings by which a workload's FLOPs exceed all training examples (0 within them).
Far outside only the analytical model remains. It alone also predicts families and kinds of problems
without training data. Trees that learn times alone pick no better than the analytical model on
unseen problems (`benchmarks.model_against_data`). Every family gives the features: sizes, knobs,
the footprint, the figures of the prediction, and the instructions that a warp issues. The virtual
GPU's counters are known only after a trial, so they cannot rank untried configurations.

Source: Chen and Guestrin, XGBoost, KDD 2016; Zheng et al., Ansor, OSDI 2020, section 5.2, learns
from features of programs in the same way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.errors import BoltgenError, RecordError
from boltgen.families.family import Config
from boltgen.families.instructions import Instructions
from boltgen.families.registry import FAMILIES, predict
from boltgen.families.space import AnySpace
from boltgen.installation import install_command
from boltgen.intake.files import written_whole
from boltgen.ir.key import digest
from boltgen.problems.workload import Workload

SUFFIX = ".ubj"
# Version of the features; a model of another version is rejected.
VERSION = 4
FOLDS = 5
# The least training data: fewer problems or times make a model, or its accuracy, meaningless.
# Choices.
FEWEST_PROBLEMS, FEWEST_TIMES = 2 * FOLDS, 100
# Choices: many small trees; one thread and one seed, so that equal records make equal models.
ROUNDS, ETA = 200, 0.1
# For shipping, at a third of the size; `benchmarks.model_against_data` records its accuracy.
_SMALL_ROUNDS, _SMALL_ETA = 60, 0.2
TREES = {
    "max_depth": 6,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "min_child_weight": 4,
    "nthread": 1,
    "seed": 0,
}
_ATTRIBUTE = "boltgen"
# The feature with log(time) of the analytical model.
_ANALYTICAL = "log_predicted"

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A configuration of a workload, and its measured time in microseconds."""

    workload: Workload
    config: Config
    arch: Arch
    time_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training data of a model, and its accuracy on unseen problems, by cross-validation.

    `regret` is the mean of (time of the first pick / fastest time) over problems. `log_error` is
    the root mean square of log(predicted / measured). The fields named `analytical` describe the
    uncorrected model on the same examples. `version` is the features' version, `most_flops` are the
    FLOPs of the largest problem, and `source` names the source of the times for people.
    """

    arch: str
    problems: int
    times: int
    regret: float
    analytical_regret: float
    log_error: float
    analytical_log_error: float
    version: int = 0
    most_flops: float = 0.0
    source: str = ""


class Learned:
    """A trained model for one architecture; see the module."""

    def __init__(self, trees: Any, training: Training) -> None:
        self._trees = trees
        self.training = training

    @property
    def name(self) -> str:
        """The name, from architecture and number of times: learned-sm_80-1200."""
        return f"learned-{self.training.arch}-{self.training.times}"

    def rejects(self, arch: Arch) -> str | None:
        """Return why it cannot predict an architecture, or None if it can."""
        remedy = f"train one by `boltgen db train FILE --arch {arch.name}`"
        if arch.name != self.training.arch:
            known = f"knows {self.training.arch}, not {arch.name}"
            return f"the cost model {self.name} {known}: {remedy}"
        if self.training.version != VERSION:
            return (
                f"the cost model {self.name} is of version {self.training.version}, this boltgen's "
                f"are of {VERSION}: {remedy}"
            )
        return None

    def predict_us(
        self, workload: Workload, configs: Sequence[Config], arch: Arch
    ) -> Sequence[float]:
        """Return the corrected times, in microseconds.

        Raises:
            BoltgenError: the model rejects the architecture; see `rejects`.
        """
        if (reason := self.rejects(arch)) is not None:
            raise BoltgenError(reason)
        if not configs:
            return []
        rows = [_features(workload, config, arch) for config in configs]
        matrix = xgboost_module().DMatrix(
            _table(rows, self._trees.feature_names), feature_names=self._trees.feature_names
        )
        analytical = np.array([row[_ANALYTICAL] for row in rows])
        corrected = analytical + self._weights(workload, rows) * self._trees.predict(matrix)
        return [float(time_us) for time_us in np.exp(corrected)]

    def _weights(self, workload: Workload, rows: Sequence[Mapping[str, float]]) -> Array:
        """Return the trees' weight per configuration; 0 for untrained families and problems."""
        known = frozenset(self._trees.feature_names)
        is_known = [
            all(name in known for name in row if name.startswith(("family.", "size.")))
            for row in rows
        ]
        larger = max(1.0, workload.flops / max(1.0, self.training.most_flops))
        return math.exp(-(math.log2(larger) ** 2) / 2) * np.array(is_known, dtype=np.float64)

    def save(self, path: Path) -> None:
        """Write the model as XGBoost's UBJSON, with a description of its training data.

        Raises:
            BoltgenError: the file cannot be written, or exists and is not a cost model.
        """
        self._trees.set_attr(**{_ATTRIBUTE: json.dumps(asdict(self.training))})
        try:
            with written_whole(path, lambda _: _is_ours(path)) as staged:
                self._trees.save_model(staged)
        except (OSError, xgboost_module().core.XGBoostError) as error:
            reason = getattr(error, "strerror", None) or (str(error).splitlines() or ["?"])[0]
            raise BoltgenError(f"{path} cannot be written: {reason}") from error


def _is_ours(path: Path) -> bool:
    try:
        load(path)
    except BoltgenError:
        return False
    return True


def load(path: Path) -> Learned:
    """Return the model in a file that `Learned.save` wrote.

    Raises:
        BoltgenError: XGBoost is missing, or the file has no cost model.
    """
    xgboost = xgboost_module()
    trees = xgboost.Booster({"nthread": 1})
    try:
        trees.load_model(path)
        training = Training(**json.loads(trees.attr(_ATTRIBUTE)))
    except (OSError, TypeError, ValueError, xgboost.core.XGBoostError) as error:
        first = (str(error).splitlines() or ["?"])[0]
        raise BoltgenError(f"{path} is no cost model of `boltgen db train`: {first}") from error
    return Learned(trees, training)


def train(examples: Sequence[Example], *, source: str = "", small: bool = False) -> Learned:
    """Train a model on all examples, and measure its accuracy by cross-validation.

    The folds of the cross-validation separate problems. A `small` model has fewer trees, for
    shipping.

    Raises:
        RecordError: the examples are of several architectures, or of too few problems or times.
        BoltgenError: XGBoost is missing.
    """
    archs = sorted({example.arch.name for example in examples})
    problems = len({example.workload for example in examples})
    if len(archs) > 1:
        raise RecordError(f"there are records of {', '.join(archs)}: name one by --arch")
    if problems < FEWEST_PROBLEMS or len(examples) < FEWEST_TIMES:
        raise RecordError(
            f"{len(examples)} times of {problems} problems are too few: a cost model takes "
            f"{FEWEST_TIMES} of {FEWEST_PROBLEMS}"
        )
    learning = learning_of(examples)
    analytical, measured = learning.analytical, learning.measured
    unseen = held_out(learning, analytical, small=small)
    training = Training(
        arch=archs[0],
        problems=problems,
        times=len(examples),
        regret=fmean(regrets(examples, unseen)),
        analytical_regret=fmean(regrets(examples, analytical)),
        log_error=_root_mean_square(unseen - measured),
        analytical_log_error=_root_mean_square(analytical - measured),
        version=VERSION,
        most_flops=max(example.workload.flops for example in examples),
        source=source,
    )
    trees = _grown(learning.names, learning.table, measured - analytical, small=small)
    return Learned(trees, training)


def fold_of(workload: Workload, split: int = 0) -> int:
    """Return the fold of `workload` in a cross-validation, the same in every process.

    Each `split` divides problems into other folds.
    """
    parts = (workload, split) if split else (workload,)
    return int(digest(*parts), 16) % FOLDS


def regrets(examples: Sequence[Example], predicted: Array) -> list[float]:
    """Return (time of the first pick / fastest time) for each problem."""
    members: dict[Workload, list[int]] = {}
    for index, example in enumerate(examples):
        members.setdefault(example.workload, []).append(index)
    return [
        examples[min(found, key=lambda index: predicted[index])].time_us
        / min(examples[index].time_us for index in found)
        for found in members.values()
    ]


def _features(workload: Workload, config: Config, arch: Arch) -> dict[str, float]:
    """Return the features by name; families and kinds of problems may differ in their features."""
    family = FAMILIES.of(config)
    prediction = predict(workload, config, arch)
    problem = workload.first.problem
    footprint = family.footprint(workload, config)
    found = {
        f"family.{family.name}": 1.0,
        "log_flops": math.log1p(workload.flops),  # a norm has none
        _ANALYTICAL: math.log(prediction.time_us),
    }
    groups = {
        f"size.{type(problem).__name__}": problem.extents,
        "knob": _space(family.name, workload, arch).point_of(config),
        "footprint": asdict(footprint),
        "model": {"time_us": prediction.time_us, **prediction.figures},
        "instructions": _issued(family.instructions(workload, config, arch), footprint.warps, arch),
    }
    for group, values in groups.items():
        found.update({f"{group}.{name}": float(value) for name, value in values.items()})
    return found


def _issued(found: Instructions, warps: int, arch: Arch) -> dict[str, float]:
    """Return the instructions of a warp, and of all warps on the busiest SM."""
    on_busiest = math.ceil(found.threadblocks / arch.sm_count)
    return asdict(found) | {
        "issued": found.issued,
        "on_busiest": on_busiest,
        "issued_on_busiest": on_busiest * warps * found.issued,
    }


@lru_cache(maxsize=64)
def _space(family: str, workload: Workload, arch: Arch) -> AnySpace:
    return FAMILIES.named(family).space(workload, arch)


@dataclass(frozen=True, slots=True)
class Learning:
    """Examples as arrays: features, fold and log(measured time) of each."""

    names: list[str]
    table: Array
    folds: NDArray[np.int64]
    measured: Array

    @property
    def analytical(self) -> Array:
        """The analytical model's log(time) of each example."""
        return self.table[:, self.names.index(_ANALYTICAL)]


def learning_of(examples: Sequence[Example], split: int = 0) -> Learning:
    """Return examples as arrays; each `split` divides problems into other folds."""
    rows = [_features(each.workload, each.config, each.arch) for each in examples]
    names = sorted({name for row in rows for name in row})
    return Learning(
        names=names,
        table=_table(rows, names),
        folds=np.array([fold_of(each.workload, split) for each in examples]),
        measured=np.log([each.time_us for each in examples]),
    )


def held_out(learning: Learning, base: Array, *, small: bool = False) -> Array:
    """Return `base` plus the trees' correction; trees of the other folds correct each fold."""
    predicted = np.empty_like(base)
    for index in range(FOLDS):
        held = learning.folds == index
        if held.any():
            others = learning.table[~held], (learning.measured - base)[~held]
            trees = _grown(learning.names, *others, small=small)
            matrix = xgboost_module().DMatrix(learning.table[held], feature_names=learning.names)
            predicted[held] = base[held] + trees.predict(matrix)
    return predicted


def _table(rows: Sequence[dict[str, float]], names: Sequence[str]) -> Array:
    """Return a table with a row per configuration; absent features are NaN, missing values."""
    return np.array([[row.get(name, math.nan) for name in names] for row in rows])


def _grown(names: list[str], table: Array, target: Array, *, small: bool = False) -> Any:
    xgboost = xgboost_module()
    matrix = xgboost.DMatrix(table, target, feature_names=names)
    rounds, eta = (_SMALL_ROUNDS, _SMALL_ETA) if small else (ROUNDS, ETA)
    return xgboost.train({**TREES, "eta": eta}, matrix, rounds)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def xgboost_module() -> ModuleType:
    """Return XGBoost.

    Raises:
        BoltgenError: it is not installed.
    """
    try:
        import xgboost  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise BoltgenError(
            f"a learned cost model needs XGBoost: {install_command('learned')}"
        ) from error
    return xgboost
