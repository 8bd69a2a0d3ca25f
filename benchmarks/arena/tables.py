"""The tables that the arena searches: real times, and devices that do not exist.

A device of `other_device` is the analytical model with other constants, noise by configuration, and
one configuration in twenty that fails. A device of `alike_device` errs as the RTX 2080 Ti does
against the model: similar configurations err alike in all problems, and once more within one
problem; a tenth of the configurations fails, the same in every problem. Its figures were fitted to
that GPU's times, see `boltgen.tuning.strategies.experience`; its noise is the spread of repeated
measurements.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.model_against_data import DATA, RTX_2080_TI, learned_examples, times
from boltgen.arch import Arch, arch_named
from boltgen.cost.learned import FOLDS, fold_of, train
from boltgen.cost.model import ANALYTICAL, CostModel
from boltgen.families.constants import ModelConstants, described, shared_constants
from boltgen.families.family import Config
from boltgen.families.mma_sync.candidates import legal_kernels
from boltgen.families.mma_sync.legality import kernel_violations, violations
from boltgen.families.registry import FAMILIES, order, predict, predicted_us, spaces
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import digest
from boltgen.ir.outcome import Failure, Fault, Outcome, Timing
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.choice.examples import examples
from boltgen.tuning.database.exchange import read_records
from boltgen.tuning.session.transfer import fastest, neighbours
from boltgen.tuning.strategies.experience import Experience
from boltgen.tuning.strategies.strategy import SearchProblem

# The analytical device.
_NOISE, _FAILING, _OTHER_CONSTANTS = 0.08, 0.05, 0.3
# The same device with another driver.
_DRIVER = 0.03
# The device of correlated errors: a configuration's error in all problems and in one problem; the
# width of correlation in knobs; and noise.
_ALIKE, _ALIKE_IN_ONE, _ALIKE_WIDTH, _ALIKE_NOISE = 0.2, 0.2, 0.37, 0.012
# A normal value above this is one of a tenth.
_TENTH = 1.2816
_WAVES = 512
# The virtual GPU's table, and how many launches a problem of it has that is searched.
VIRTUAL_GPU, _LAUNCHES = "gemm_vgpu_sm80.jsonl.gz", 32

Answer = Callable[[Config], Outcome]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A problem, and what a device answers about each of its configurations.

    `first` are measured before a strategy is asked. `in_order` gives all that a search can reach
    and that does not fail but by chance, fastest first but for noise; None where nobody knows.
    """

    name: str
    problem: SearchProblem
    answer: Answer
    best_us: float
    first: tuple[Config, ...] = ()
    in_order: Callable[[], Sequence[Config]] | None = None

    def searched(self, experience: Experience) -> SearchProblem:
        """The problem for one strategy: of all that others asked only the candidates' times are
        known, as in a session.
        """
        legal_kernels.cache_clear()
        kernel_violations.cache_clear()
        predictions = self.problem.predicted_us
        assert isinstance(predictions, _Predictions)
        return replace(self.problem, experience=experience, predicted_us=predictions.anew())

    @property
    def listed(self) -> Table:
        """The same table, in which a search has the candidates alone."""
        by_family: dict[str, list[Config]] = defaultdict(list)
        for config in self.problem.candidates:
            by_family[config.family].append(config)
        spaces = tuple(each.only(by_family[each.family]) for each in self.problem.spaces)
        known, in_order = frozenset(self.problem.candidates), self.in_order
        return replace(
            self,
            problem=replace(self.problem, spaces=spaces),
            in_order=in_order and (lambda: [each for each in in_order() if each in known]),
        )


class _Predictions:
    """A cost model's times of a workload's configurations, each predicted once."""

    def __init__(
        self, model: CostModel, workload: Workload, arch: Arch, listed: Sequence[Config]
    ) -> None:
        self._model, self._workload, self._arch = model, workload, arch
        times_us = model.predict_us(workload, listed, arch)
        self._listed_us = dict(zip(listed, times_us, strict=True))
        self._known_us = dict(self._listed_us)

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        new = [config for config in dict.fromkeys(configs) if config not in self._known_us]
        times_us = self._model.predict_us(self._workload, new, self._arch) if new else ()
        self._known_us.update(zip(new, times_us, strict=True))
        return [self._known_us[config] for config in configs]

    def anew(self) -> _Predictions:
        """With what is known of the listed ones alone."""
        found = copy(self)
        found._known_us = dict(self._listed_us)
        return found


def real_tables(model_of: Callable[[Workload], CostModel]) -> list[Table]:
    """One table for each problem of the RTX 2080 Ti's, with the cost model for it."""
    found = []
    for (gemm, slices), measured in times().items():
        workload = Workload.of(gemm)
        legal = {c: us for c, us in measured.items() if not violations(gemm, c, RTX_2080_TI)}
        whole = FAMILIES.named("cutlass2").space(workload, RTX_2080_TI)
        model = model_of(workload)
        problem = _problem(workload, list(legal), (whole.only(legal),), RTX_2080_TI, model)
        found.append(_of_records(f"{workload.short}, {slices} slices", problem, legal))
    return found


def virtual_gpu_tables() -> list[Table]:
    """One table for each problem of the virtual GPU's that has as many launches as were drawn."""
    arch = arch_named("sm_80")
    measured: dict[Workload, dict[Config, float]] = defaultdict(dict)
    for each in examples(read_records(DATA / VIRTUAL_GPU)):
        measured[each.workload][each.config] = each.time_us
    found = []
    for workload, times_us in measured.items():
        if len(times_us) >= _LAUNCHES:
            (space,) = (s for s in spaces(workload, arch) if s.family == "cutlass2")
            problem = _problem(workload, list(times_us), (space.only(times_us),), arch)
            found.append(_of_records(f"{workload.short} on the virtual GPU", problem, times_us))
    return found


def _of_records(name: str, problem: SearchProblem, measured: Mapping[Any, float]) -> Table:
    """A table that answers with recorded times."""
    answer = partial(_recorded, measured)
    return Table(name=name, problem=problem, answer=answer, best_us=min(measured.values()))


def learned_models() -> Callable[[Workload], CostModel]:
    """Return, for each problem of the RTX 2080 Ti, a model that was trained on other folds only."""
    known = learned_examples(times())
    models = [
        train([each for each in known if fold_of(each.workload) != fold]) for fold in range(FOLDS)
    ]
    return lambda workload: models[fold_of(workload)]


def _recorded(measured: Mapping[Any, float], config: Config) -> Outcome:
    if config in measured:
        return Timing.exact(measured[config])
    return Failure(fault=Fault.NOT_RECORDED, reason="the table has no such configuration")


def _problem(
    workload: Workload,
    configs: Sequence[Config],
    found: Sequence[Any],
    arch: Arch,
    model: CostModel = ANALYTICAL,
) -> SearchProblem:
    predicted_us = _Predictions(model, workload, arch, configs)
    timed = sorted(zip(predicted_us(configs), map(order, configs), configs, strict=True))
    return SearchProblem(
        workload=workload,
        candidates=tuple(config for _, _, config in timed),
        spaces=tuple(found),
        predicted_us=predicted_us,
    )


def _biased_relu() -> Any:
    graph = ElementwiseBuilder()
    graph.unary(UnaryOp.RELU, graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW)))
    return graph.build()


def workloads() -> list[tuple[str, Workload]]:
    """Products, convolutions and layers back to back, with the architectures they are tried on."""
    relu = _biased_relu()
    image = Conv2d(n=32, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
    pair = tuple(Layer(problem=Gemm(m=16384, n=64, k=k), epilogue=relu) for k in (256, 64))
    return [
        ("sm_80", Workload.of(Gemm(m=3072, n=768, k=3072, b_layout=Layout.COLUMN), relu)),
        ("sm_80", Workload.of(Gemm(m=128, n=768, k=768), relu)),
        ("sm_80", Workload.of(image, relu)),
        ("sm_75", Workload.of(replace(image, h=14, w=14, c=256, k=256), relu)),
        ("sm_80", Workload(layers=pair)),
        ("sm_90a", Workload.of(Gemm(m=4096, n=4096, k=4096, b_layout=Layout.COLUMN), relu)),
    ]


def with_neighbours(tables: Sequence[Table]) -> list[Table]:
    """Return tables that begin with the fastest configurations of neighbouring problems."""
    fast: dict[Workload, dict[Config, float]] = defaultdict(dict)
    for table in tables:
        for config in table.problem.candidates:
            outcome = table.answer(config)
            if isinstance(outcome, Timing):
                fast[table.problem.workload][config] = outcome.median_us
    return [
        replace(
            table,
            first=fastest(
                [fast[each] for each in neighbours(table.problem.workload, fast)],
                table.problem.candidates,
            ),
        )
        for table in tables
    ]


def with_earlier(tables: Sequence[Table], earlier: Sequence[Table], seed: int) -> list[Table]:
    """Tables that begin with what was fastest earlier, when times were 3 % off."""
    found = []
    for table, before in zip(tables, earlier, strict=True):
        times_us = {}
        for config in table.problem.candidates:
            outcome = before.answer(config)
            if isinstance(outcome, Timing):
                rng = random.Random(digest(config, "earlier", seed))
                times_us[config] = outcome.median_us * math.exp(rng.gauss(0.0, _DRIVER))
        found.append(replace(table, first=fastest([times_us], table.problem.candidates)))
    return found


@cache
def other_device(seed: int) -> tuple[Table, ...]:
    """The workloads on a device with constants of its own."""
    constants = _other_constants(seed)
    found = []
    for name, workload in workloads():
        arch = arch_named(name)
        noiseless_us = partial(_noiseless_us, workload, arch, constants)
        answer = partial(_computed, noiseless_us, workload, seed)
        in_order = cache(partial(_in_order, workload, arch, constants))
        found.append(_invented(name, workload, answer, in_order))
    return tuple(found)


@cache
def alike_device(seed: int) -> tuple[Table, ...]:
    """The workloads on a device whose errors are alike in all of them."""
    constants = _other_constants(seed)
    found = []
    for name, workload in workloads():
        arch = arch_named(name)
        encodings = {space.family: space.encode for space in spaces(workload, arch)}

        def smooth(
            config: Config,
            *of: object,
            encodings: Mapping[str, Callable[[Config], tuple[float, ...]]] = encodings,
        ) -> float:
            """A smooth random function of the knobs; equal arguments have the same one."""
            place = encodings[config.family](config)
            waves = _waves(str(of), seed, config.family, len(place))
            return float(waves(np.array(place)))

        def noiseless_us(
            config: Config,
            workload: Workload = workload,
            arch: Arch = arch,
            smooth: Callable[..., float] = smooth,
        ) -> float:
            error = _ALIKE * smooth(config, "all")
            error += _ALIKE_IN_ONE * smooth(config, workload.short)
            return _noiseless_us(workload, arch, constants, config) * math.exp(error)

        def answer(
            config: Config,
            workload: Workload = workload,
            smooth: Callable[..., float] = smooth,
            noiseless_us: Callable[[Config], float] = noiseless_us,
        ) -> Outcome:
            if smooth(config, "fails") > _TENTH:
                return Failure(fault=Fault.LAUNCH, reason="a tenth fails")
            noise = random.Random(digest(workload, config, seed)).gauss(0.0, _ALIKE_NOISE)
            return Timing.exact(noiseless_us(config) * math.exp(noise))

        in_order = cache(partial(_alike_in_order, workload, arch, constants, seed))
        found.append(_invented(name, workload, answer, in_order))
    return tuple(found)


@cache
def _waves(name: str, seed: int, family: str, knobs: int) -> Callable[[Array], Array]:
    """A random function of unit variance that is smooth over a width of knobs.

    Source: Rahimi and Recht, Random features for large-scale kernel machines, NIPS 2007.
    """
    rng = np.random.default_rng(int(digest(name, seed, family), 16) % 2**32)
    frequencies = rng.normal(size=(knobs, _WAVES)) / _ALIKE_WIDTH
    phases = rng.uniform(0.0, 2 * math.pi, _WAVES)
    weights = rng.normal(size=_WAVES) * math.sqrt(2 / _WAVES)
    return lambda places: np.asarray(np.cos(places @ frequencies + phases) @ weights)


@cache
def _reachable(workload: Workload, arch: Arch) -> tuple[tuple[Config, Array], ...]:
    """All legal kernels with all their legal launches, each with its place among the knobs."""
    found = []
    for space in spaces(workload, arch):
        knobs = [knob for knob in space.knobs if knob.name in space.launched]
        names, launches = [each.name for each in knobs], [each.values for each in knobs]
        for kernel in space.legal_kernels():
            point = space.point_of(kernel)
            for values in itertools.product(*launches):
                config = space.config_at(point | dict(zip(names, values, strict=True)))
                if config is not None and not space.broken(config):
                    found.append((config, np.array(space.encode(config))))
    return tuple(found)


def _in_order(workload: Workload, arch: Arch, constants: ModelConstants) -> list[Config]:
    """Return the configurations that a search can reach, fastest first on a device with these
    constants.
    """
    configs = [config for config, _ in _reachable(workload, arch)]
    times_us = predicted_us(workload, configs, arch, constants)
    return [configs[number] for number in np.argsort(times_us, kind="stable")]


def _alike_in_order(
    workload: Workload, arch: Arch, constants: ModelConstants, seed: int
) -> list[Config]:
    """The same where errors are alike in all problems, without what fails."""
    by_family: dict[str, list[tuple[Config, Array]]] = defaultdict(list)
    for config, place in _reachable(workload, arch):
        by_family[config.family].append((config, place))
    configs, expected = [], []
    for family, reached in by_family.items():
        places = np.array([place for _, place in reached])

        def smooth(*of: object, family: str = family, places: Array = places) -> Array:
            return _waves(str(of), seed, family, places.shape[1])(places)

        own = [config for config, _ in reached]
        logs = np.log(predicted_us(workload, own, arch, constants))
        logs += _ALIKE * smooth("all") + _ALIKE_IN_ONE * smooth(workload.short)
        right = np.flatnonzero(smooth("fails") <= _TENTH)
        configs += [own[number] for number in right]
        expected.append(logs[right])
    return [configs[number] for number in np.argsort(np.concatenate(expected), kind="stable")]


def _other_constants(seed: int) -> ModelConstants:
    rng = random.Random(seed)
    known = described()
    changed = {
        field.name: known[field.name].value * math.exp(rng.gauss(0.0, _OTHER_CONSTANTS))
        for field in fields(ModelConstants)
    }
    clipped = {name: min(max(v, known[name].low), known[name].high) for name, v in changed.items()}
    return replace(shared_constants(), **clipped)


def _invented(
    name: str, workload: Workload, answer: Answer, in_order: Callable[[], Sequence[Config]]
) -> Table:
    """A table of a device that nobody has, which computes each answer once."""
    arch = arch_named(name)
    open_spaces = spaces(workload, arch)
    configs = [config for space in open_spaces for config in space.candidates]
    remembered = cache(answer)
    answers = map(remembered, configs)
    return Table(
        name=f"{workload.short} on {name}",
        problem=_problem(workload, configs, open_spaces, arch),
        answer=remembered,
        best_us=min(each.median_us for each in answers if isinstance(each, Timing)),
        in_order=in_order,
    )


def _noiseless_us(
    workload: Workload, arch: Arch, constants: ModelConstants, config: Config
) -> float:
    return predict(workload, config, arch, constants).time_us


def _computed(
    noiseless_us: Callable[[Config], float], workload: Workload, seed: int, config: Config
) -> Outcome:
    rng = random.Random(digest(workload, config, seed))
    if rng.random() < _FAILING:
        return Failure(fault=Fault.LAUNCH, reason="one in twenty fails")
    return Timing.exact(noiseless_us(config) * math.exp(rng.gauss(0.0, _NOISE)))
