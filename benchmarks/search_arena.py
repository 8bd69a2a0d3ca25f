"""Every search strategy on the same tables of times, at equal numbers of trials.

    python -m benchmarks.search_arena [--seeds N]

Two kinds of tables. `rtx_2080_ti` has real times (`benchmarks/data`), of one problem each; what it
does not have is not legal there. `learned` is the same, where the strategies' cost model is not the
analytical one but what `boltgen db train` makes of the other problems: models of each fold have
seen none of its problems. `analytical` is a device that nobody has: the model's times with other
constants, noise by configuration, and one in twenty that fails; each seed is another device. With
`neighbours`, `driver` or `device` sessions begin with what was fast for other problems of the
table, on the same device with times that are 3 % off, or on another one
(`boltgen.tuning.elsewhere`). Regret is the best time so far over the best of the table, or of all
that any strategy found.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from time import perf_counter
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from benchmarks.model_against_data import RTX_2080_TI, learned_examples, times
from benchmarks.record import RESULTS, write
from boltgen.arch import Arch, arch_named
from boltgen.cost.learned import FOLDS, fold_of, train
from boltgen.cost.model import ANALYTICAL, CostModel
from boltgen.families.constants import ModelConstants, described, model_constants
from boltgen.families.cutlass2.legality import violations
from boltgen.families.family import Config
from boltgen.families.registry import FAMILIES, order, predict, spaces
from boltgen.families.space import AnySpace, Violation
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import digest
from boltgen.ir.outcome import Failure, Fault, Outcome, Timing
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.ir.workload import Layer, Workload
from boltgen.tuning.elsewhere import fastest, neighbours
from boltgen.tuning.strategies import STRATEGIES
from boltgen.tuning.strategies.strategy import SearchProblem

TRIALS = (8, 16, 32, 64, 128)
# What a session measures between two looks at the outcomes.
BATCH = 8
NEAR = 1.02
# Of the analytical device.
_NOISE, _FAILING, _OTHER_CONSTANTS = 0.08, 0.05, 0.3
# Of the same device with another driver.
_DRIVER = 0.03

Answer = Callable[[Config], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A problem, and what a device answers about each of its configurations.

    `first` are measured before a strategy is asked.
    """

    name: str
    problem: SearchProblem
    answer: Answer
    best_us: float
    first: tuple[Config, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A search: the best time after each trial, in its order, and seconds of the strategy's."""

    best_us: tuple[float, ...]
    seconds: float


def real_tables(model_of: Callable[[Workload], CostModel]) -> list[Table]:
    """One table for each problem of the RTX 2080 Ti's, with the cost model for it."""
    found = []
    for (gemm, slices), measured in times().items():
        workload = Workload.of(gemm)
        legal = {c: us for c, us in measured.items() if not violations(gemm, c, RTX_2080_TI)}
        whole = FAMILIES.named("cutlass2").space(workload, RTX_2080_TI)
        space = replace(whole, broken=partial(_unrecorded, legal, whole))
        model = model_of(workload)
        problem = _problem(workload, list(legal), (space,), RTX_2080_TI, model)
        found.append(
            Table(
                name=f"{workload.short}, {slices} slices",
                problem=problem,
                answer=partial(_recorded, legal),
                best_us=min(legal.values()),
            )
        )
    return found


def learned_models() -> Callable[[Workload], CostModel]:
    """For each problem of the RTX 2080 Ti's a model that has seen those of other folds only."""
    known = learned_examples(times())
    models = [
        train([each for each in known if fold_of(each.workload) != fold]) for fold in range(FOLDS)
    ]
    return lambda workload: models[fold_of(workload)]


def _unrecorded(measured: Mapping[Any, float], space: AnySpace, config: Any) -> Any:
    """The rules that a configuration breaks; one more is to be in the table."""
    if config in measured:
        return ()
    absent = Violation(name="recorded", message="the table has none", reason="nobody measured it")
    return (*space.broken(config), absent)


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
    known: dict[Config, float] = {}  # as a session does

    def predicted_us(chosen: Sequence[Config]) -> list[float]:
        new = [config for config in dict.fromkeys(chosen) if config not in known]
        known.update(zip(new, model.predict_us(workload, new, arch), strict=True))
        return [known[config] for config in chosen]

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
    """Tables that begin with what was fastest in those of neighbouring problems."""
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


def other_device(seed: int) -> list[Table]:
    """The workloads on a device with constants of its own."""
    rng = random.Random(seed)
    known = described()
    changed = {
        field.name: known[field.name].value * math.exp(rng.gauss(0.0, _OTHER_CONSTANTS))
        for field in fields(ModelConstants)
    }
    clipped = {name: min(max(v, known[name].low), known[name].high) for name, v in changed.items()}
    constants = replace(model_constants(), **clipped)
    found = []
    for name, workload in workloads():
        arch = arch_named(name)
        open_spaces = spaces(workload, arch)
        configs = [config for space in open_spaces for config in space.candidates]
        answer = partial(_computed, workload, arch, constants, seed)
        answers = map(answer, configs)
        found.append(
            Table(
                name=f"{workload.short} on {name}",
                problem=_problem(workload, configs, open_spaces, arch),
                answer=answer,
                best_us=min(each.median_us for each in answers if isinstance(each, Timing)),
            )
        )
    return found


def _computed(
    workload: Workload, arch: Arch, constants: ModelConstants, seed: int, config: Config
) -> Outcome:
    rng = random.Random(digest(workload, config, seed))
    if rng.random() < _FAILING:
        return Failure(fault=Fault.LAUNCH, reason="one in twenty fails")
    time_us = predict(workload, config, arch, constants).time_us
    return Timing.exact(time_us * math.exp(rng.gauss(0.0, _NOISE)))


def course(name: str, table: Table, seed: int) -> Course:
    """A search by the strategy of that name until the last number of trials, or its end."""
    started = perf_counter()
    strategy = STRATEGIES[name](table.problem, random.Random(f"{seed}/{table.name}"))
    seconds = perf_counter() - started
    best = math.inf
    found: list[float] = []
    known: dict[Config, Outcome] = {}

    def hear(config: Config) -> Outcome:
        """The answer about a configuration, which is a trial where it is new."""
        nonlocal best
        if config not in known:
            outcome = known[config] = table.answer(config)
            if isinstance(outcome, Timing):
                best = min(best, outcome.median_us)
            if isinstance(outcome, Timing) or outcome.fault is not Fault.NOT_RECORDED:
                found.append(best)
        return known[config]

    for config in table.first:
        hear(config)
    while len(found) < TRIALS[-1]:
        started = perf_counter()
        configs = strategy.propose(min(BATCH, TRIALS[-1] - len(found)))
        seconds += perf_counter() - started
        if not configs:
            break
        results = [(config, hear(config)) for config in configs]
        started = perf_counter()
        strategy.observe(results)
        seconds += perf_counter() - started
    return Course(best_us=tuple(found), seconds=seconds)


def compared(tables: Sequence[Table], seed: int) -> dict[str, list[tuple[Course, float]]]:
    """Each strategy's course on each table, with the best time that anyone knows of it."""
    found: dict[str, list[tuple[Course, float]]] = defaultdict(list)
    for table in tables:
        courses = {name: course(name, table, seed) for name in STRATEGIES}
        best_us = min(table.best_us, *(each.best_us[-1] for each in courses.values()))
        for name, each in courses.items():
            found[name].append((each, best_us))
    return found


def figures(runs: Sequence[tuple[Course, float]]) -> dict[str, Any]:
    """Mean regret after each number of trials with its 95 % interval, and what it cost."""
    regret = {}
    for trials in TRIALS:
        values = [
            each.best_us[min(trials, len(each.best_us)) - 1] / best_us for each, best_us in runs
        ]
        half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
        mean = statistics.fmean(values)
        regret[str(trials)] = [round(mean, 4), round(mean - half, 4), round(mean + half, 4)]
    near = [_trials_until_near(each, best_us) for each, best_us in runs]
    spent = [len(each.best_us) for each, _ in runs]
    return {
        "regret": regret,
        "trials_until_within_2_percent": statistics.median(near),
        "trials_spent": round(statistics.fmean(spent), 1),
        "ms_per_trial": round(sum(each.seconds for each, _ in runs) / sum(spent) * 1e3, 3),
    }


def _trials_until_near(found: Course, best_us: float) -> float:
    times_us = enumerate(found.best_us, 1)
    return next((n for n, us in times_us if us <= NEAR * best_us), math.inf)


def draw(found: Mapping[str, Mapping[str, Any]]) -> None:
    """A panel for each kind of table: regret by trials, with intervals."""
    size = 4.5 * len(found), 4
    figure, panels = pyplot.subplots(1, len(found), figsize=size, layout="constrained")
    for axes, (kind, by_strategy) in zip(panels, found.items(), strict=True):
        for name, values in by_strategy.items():
            mean, low, high = zip(*values["regret"].values(), strict=True)
            axes.plot(TRIALS, mean, marker="o", markersize=3, label=name)
            axes.fill_between(TRIALS, low, high, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set_xticks(TRIALS, labels=map(str, TRIALS))
        axes.set(title=kind, xlabel="trials", ylabel="best so far / best of the table")
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(RESULTS / "search_arena.png", dpi=110)


def main() -> None:
    """Run the arena, record and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    runs: dict[str, dict[str, list[tuple[Course, float]]]] = {}
    real = real_tables(lambda _: ANALYTICAL)
    learned = real_tables(learned_models())
    near = with_neighbours(real)
    kinds: dict[str, Callable[[int], list[Table]]] = {
        "rtx_2080_ti": lambda _: real,
        "rtx_2080_ti, learned": lambda _: learned,
        "rtx_2080_ti, neighbours": lambda _: near,
        "analytical": other_device,
        "analytical, driver": lambda seed: with_earlier(
            other_device(seed), other_device(seed), seed
        ),
        "analytical, device": lambda seed: with_earlier(
            other_device(seed), other_device(seed + 1000), seed
        ),
    }
    for kind, tables_of in kinds.items():
        runs[kind] = defaultdict(list)
        for seed in seeds:
            for name, each in compared(tables_of(seed), seed).items():
                runs[kind][name] += each
    found = {
        kind: {name: figures(each) for name, each in by_strategy.items()}
        for kind, by_strategy in runs.items()
    }
    draw(found)
    write(
        "search_arena",
        found,
        target="trials until within 2 % of the best, median: a quarter of exhaustive's; 1 ms a "
        "trial",
    )


if __name__ == "__main__":
    main()
