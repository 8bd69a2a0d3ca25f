"""Learned: the analytical model, corrected by boosted trees that records have trained.

    time = analytical * exp(w * trees(features)),   w = exp(-d^2 / 2)

The trees learn log(measured / predicted). Trees do not extrapolate: d is the number of doublings of
FLOPs by which a workload exceeds all training examples, else 0, so that only the analytical model
remains far outside. It alone predicts families and kinds of problems that were not trained. Trees
that learn times alone pick no better than the analytical model on unseen problems
(`benchmarks.model_against_data`). Every family gives the features: sizes, knobs, the footprint, the
figures of the prediction, and the instructions that a warp issues. The virtual GPU's counters are
known only after a trial, and so cannot rank untried configurations.

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
# Version of the features: models of another version are refused.
VERSION = 4
FOLDS = 5
# Fewer problems say nothing of one that is left out, and fewer times nothing of trees. Choices.
FEWEST_PROBLEMS, FEWEST_TIMES = 2 * FOLDS, 100
# Choices: small trees, many of them; one thread and one seed, so that equal records make equal
# models.
_ROUNDS, _ETA = 200, 0.1
# A third of the size, to be shipped: `benchmarks.model_against_data` records the loss of accuracy.
_SMALL_ROUNDS, _SMALL_ETA = 60, 0.2
_TREES = {
    "max_depth": 6,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "min_child_weight": 4,
    "nthread": 1,
    "seed": 0,
}
# The ranking loss: the logarithmic gap in time at which two configurations are likely in this
# order, and how many of each problem's first are compared with others. Choices.
_RANKED_APART, _RANKED_FIRST = 0.1, 8
_RANKING = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": _RANKED_FIRST,
    "base_score": 0.0,
}
_ATTRIBUTE = "boltgen"
# The feature that is the logarithm of the analytical time.
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
    """The training data of a model, and its accuracy on problems that it had not seen.

    `regret` is the mean time of the first pick over the fastest of its problem, and `log_error` the
    root mean square of log(predicted / measured); the fields named `analytical` are for the
    uncorrected model, on the same examples. `version` is the features' version, `most_flops` the
    largest problem's FLOPs, and `source` names the times' source for people.
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
    """A trained model; see the module. It predicts one architecture."""

    def __init__(self, trees: Any, training: Training) -> None:
        self._trees = trees
        self.training = training

    @property
    def name(self) -> str:
        """The name, by its training data: learned-sm_80-1200."""
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
        """Return the corrected times.

        Raises:
            BoltgenError: the model rejects the architecture.
        """
        if (reason := self.rejects(arch)) is not None:
            raise BoltgenError(reason)
        if not configs:
            return []
        rows = [_features(workload, config, arch) for config in configs]
        matrix = _xgboost().DMatrix(
            _table(rows, self._trees.feature_names), feature_names=self._trees.feature_names
        )
        analytical = np.array([row[_ANALYTICAL] for row in rows])
        corrected = analytical + self._weights(workload, rows) * self._trees.predict(matrix)
        return [float(time_us) for time_us in np.exp(corrected)]

    def _weights(self, workload: Workload, rows: Sequence[Mapping[str, float]]) -> Array:
        """Return the weight of the trees for each configuration; see the module."""
        known = frozenset(self._trees.feature_names)
        is_known = [
            all(name in known for name in row if name.startswith(("family.", "size.")))
            for row in rows
        ]
        larger = max(1.0, workload.flops / max(1.0, self.training.most_flops))
        return math.exp(-(math.log2(larger) ** 2) / 2) * np.array(is_known, dtype=np.float64)

    def save(self, path: Path) -> None:
        """Write it as XGBoost's own UBJSON, with its training data's description.

        Raises:
            BoltgenError: the file cannot be written, or another program wrote it.
        """
        self._trees.set_attr(**{_ATTRIBUTE: json.dumps(asdict(self.training))})
        try:
            with written_whole(path, lambda _: _is_ours(path)) as staged:
                self._trees.save_model(staged)
        except (OSError, _xgboost().core.XGBoostError) as error:
            reason = getattr(error, "strerror", None) or (str(error).splitlines() or ["?"])[0]
            raise BoltgenError(f"{path} cannot be written: {reason}") from error


def _is_ours(path: Path) -> bool:
    try:
        load(path)
    except BoltgenError:
        return False
    return True


def load(path: Path) -> Learned:
    """The model in a file that `Learned.save` wrote.

    Raises:
        BoltgenError: XGBoost is missing, or the file has no cost model.
    """
    xgboost = _xgboost()
    trees = xgboost.Booster({"nthread": 1})
    try:
        trees.load_model(path)
        training = Training(**json.loads(trees.attr(_ATTRIBUTE)))
    except (OSError, TypeError, ValueError, xgboost.core.XGBoostError) as error:
        first = (str(error).splitlines() or ["?"])[0]
        raise BoltgenError(f"{path} is no cost model of `boltgen db train`: {first}") from error
    return Learned(trees, training)


def train(examples: Sequence[Example], *, source: str = "", small: bool = False) -> Learned:
    """Train a model on all examples; its figures come from a cross-validation that leaves problems
    out.

    A `small` one has fewer trees, to be shipped.

    Raises:
        RecordError: there are several architectures, or too few problems or times.
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
    learning = _learning(examples)
    analytical, measured = learning.analytical, learning.measured
    unseen = _held_out(learning, analytical, small=small)
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


def cross_validated(
    examples: Sequence[Example], *, corrects: bool = True, ranks: bool = False, split: int = 0
) -> Array:
    """Return the logarithms of predicted times, each by a model that has not seen the example's
    problem.

    A model has not seen the other problems of that fold either; each `split` has other folds. With
    `corrects` the trees correct the analytical model; without, they learn times alone. With `ranks`
    they learn which of two configurations is faster, instead of log(measured / predicted).
    """
    learning = _learning(examples, split)
    analytical = learning.analytical
    if ranks:
        return _ranked(learning)
    return _held_out(learning, analytical if corrects else np.zeros_like(analytical))


def fold_of(workload: Workload, split: int = 0) -> int:
    """The fold of a cross-validation that leaves `workload` out, the same in every process.

    Each `split` divides problems otherwise.
    """
    parts = (workload, split) if split else (workload,)
    return int(digest(*parts), 16) % FOLDS


def regrets(examples: Sequence[Example], predicted: Array) -> list[float]:
    """Return, for each problem, the time of the first pick over the fastest time."""
    members: dict[Workload, list[int]] = {}
    for index, example in enumerate(examples):
        members.setdefault(example.workload, []).append(index)
    return [
        examples[min(found, key=lambda index: predicted[index])].time_us
        / min(examples[index].time_us for index in found)
        for found in members.values()
    ]


def _features(workload: Workload, config: Config, arch: Arch) -> dict[str, float]:
    """Numbers by name; families and kinds of problems need not have the same ones."""
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
    """Return the instructions of a warp, and of the busiest SM."""
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
class _Learning:
    """Examples as numbers: features of each, its problem, its fold, the logarithm of its time."""

    names: list[str]
    table: Array
    problems: NDArray[np.int64]
    folds: NDArray[np.int64]
    measured: Array

    @property
    def analytical(self) -> Array:
        """The logarithms of the analytical model's times."""
        return self.table[:, self.names.index(_ANALYTICAL)]


def _learning(examples: Sequence[Example], split: int = 0) -> _Learning:
    rows = [_features(each.workload, each.config, each.arch) for each in examples]
    names = sorted({name for row in rows for name in row})
    numbers = {workload: at for at, workload in enumerate({e.workload: 0 for e in examples})}
    return _Learning(
        names=names,
        table=_table(rows, names),
        problems=np.array([numbers[each.workload] for each in examples]),
        folds=np.array([fold_of(each.workload, split) for each in examples]),
        measured=np.log([each.time_us for each in examples]),
    )


def _held_out(learning: _Learning, base: Array, *, small: bool = False) -> Array:
    """Return `base` corrected, each fold by trees of the others."""
    predicted = np.empty_like(base)
    for index in range(FOLDS):
        held = learning.folds == index
        if held.any():
            others = learning.table[~held], (learning.measured - base)[~held]
            trees = _grown(learning.names, *others, small=small)
            matrix = _xgboost().DMatrix(learning.table[held], feature_names=learning.names)
            predicted[held] = base[held] + trees.predict(matrix)
    return predicted


def _ranked(learning: _Learning) -> Array:
    """Return the analytical model corrected, each fold by trees that rank the others.

    The odds that one configuration is faster than another of its problem are exp(difference of
    logarithms / `_RANKED_APART`). Source: Burges, From RankNet to LambdaRank to LambdaMART, 2010.
    """
    base = learning.analytical
    predicted = np.empty_like(base)
    for index in range(FOLDS):
        held = learning.folds == index
        if held.any():
            rest = np.flatnonzero(~held)
            rest = rest[np.argsort(learning.problems[rest], kind="stable")]
            faster = [
                learning.measured[learning.problems == problem].max()
                for problem in learning.problems[rest]
            ] - learning.measured[rest]
            margin = -base / _RANKED_APART
            matrix = _xgboost().DMatrix(
                learning.table[rest],
                faster,
                qid=learning.problems[rest],
                base_margin=margin[rest],
            )
            settings = {**_TREES, "eta": _ETA, **_RANKING}
            trees = _xgboost().train(settings, matrix, _ROUNDS)
            asked = _xgboost().DMatrix(learning.table[held], base_margin=margin[held])
            predicted[held] = -_RANKED_APART * trees.predict(asked)
    return predicted


def _table(rows: Sequence[dict[str, float]], names: Sequence[str]) -> Array:
    """Return a row for each configuration; absent features are missing values to the trees."""
    return np.array([[row.get(name, math.nan) for name in names] for row in rows])


def _grown(names: list[str], table: Array, target: Array, *, small: bool = False) -> Any:
    xgboost = _xgboost()
    matrix = xgboost.DMatrix(table, target, feature_names=names)
    rounds, eta = (_SMALL_ROUNDS, _SMALL_ETA) if small else (_ROUNDS, _ETA)
    return xgboost.train({**_TREES, "eta": eta}, matrix, rounds)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _xgboost() -> ModuleType:
    try:
        import xgboost  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise BoltgenError(
            f"a learned cost model needs XGBoost: {install_command('learned')}"
        ) from error
    return xgboost
