"""Every search strategy on the same tables of times, at equal numbers of trials.

    python -m benchmarks.search_arena [--seeds N]

`benchmarks.arena.tables` makes the tables, and a panel is named after its table.

- `rtx_2080_ti` has the measured times of `benchmarks/data`. Every seed draws eight of its problems.
  A configuration that the table lacks is not legal.
- `rtx_2080_ti, learned` has the same times. Its cost model is the one that `boltgen db train` makes
  of the other problems: no model has seen a problem of its own fold.
- `virtual_gpu` has the modelled times of `benchmarks.virtual_gpu_table`, of the problems with 32
  launches. Every seed draws eight of them.
- `analytical` is an invented device. Each seed gives it other constants, and its errors are random.
- `alike` is an invented device, too. Its errors are alike in all problems.

A word after the comma changes how the searches begin or what they may try.

- `neighbours`: a search begins with what was fast for other problems of the table.
- `driver`: it begins with what was fast on the same device with times that are 3 % off.
- `device`: it begins with what was fast on another device (`boltgen.tuning.session.transfer`).
- `listed`: only the candidates are legal, as in a session with the kernels of a library.
- `session`: the problems of a device are tuned one after the other, and the outcomes of one correct
  the cost model for the next. Otherwise each problem is tuned alone.

Regret is the best time so far over the best time of the table, or over the best that any strategy
found. `above_exhaustive` and `above_random` compare it problem by problem with that of these two
strategies, with the same interval. `loses_to_random` lists the numbers of trials after which the
mean regret is higher than random's.

`omniscient` is no strategy: it knows the time on that device of all that a search can reach, all
legal kernels and their launches, but for the noise, which nothing can predict, and tries them
fastest first. With noise that is the same for all, no order finds a time below a given one in fewer
trials. So it bounds the trials until a search is within 2 % of the best, where the best is told
beforehand, as in `listed`. Elsewhere the best may be what one strategy alone was lucky to find, and
that one may be before it.

Milliseconds are those of the processor on one thread, because others use the machine too. A search
of eight trials costs more for each than a longer one: it goes through all legal kernels, too.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

# Before numpy is loaded: threads that wait for each other would count as a strategy's time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from benchmarks.arena import ALL_STRATEGIES
from benchmarks.arena.tables import (
    Table,
    alike_device,
    learned_models,
    other_device,
    real_tables,
    virtual_gpu_tables,
    with_earlier,
    with_neighbours,
)
from benchmarks.record import RESULTS, write
from boltgen.cost.model import ANALYTICAL
from boltgen.families.family import Config
from boltgen.ir.outcome import Fault, Outcome, Timing
from boltgen.tuning.strategies.experience import Experience
from boltgen.tuning.strategies.strategy import InOrder, SearchProblem, StrategyFactory

TRIALS = (8, 16, 32, 64, 128)
# A session measures so many trials between two looks at the outcomes.
BATCH = 8
NEAR = 1.02
# Real problems that a seed draws.
_DRAWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A search: the best time after each of its trials, and the strategy's own seconds.

    `first_seconds` are those of its first batch, None where nobody took them.
    """

    best_us: tuple[float, ...]
    seconds: float
    first_seconds: float | None = None


def course(make: StrategyFactory, table: Table, seed: int, experience: Experience) -> Course:
    """A search by a strategy until the last number of trials, or its end."""
    problem = table.searched(experience)
    started = process_time()
    strategy = make(problem, random.Random(f"{seed}/{table.name}"))
    seconds = process_time() - started
    first_seconds: float | None = None
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
        started = process_time()
        configs = strategy.propose(min(BATCH, TRIALS[-1] - len(found)))
        seconds += process_time() - started
        if not configs:
            break
        results = [(config, hear(config)) for config in configs]
        started = process_time()
        strategy.observe(results)
        seconds += process_time() - started
        first_seconds = seconds if first_seconds is None else first_seconds
    return Course(best_us=tuple(found), seconds=seconds, first_seconds=first_seconds)


def compared(
    tables: Sequence[Table], seed: int, *, session: bool
) -> dict[str, list[tuple[Course, float]]]:
    """Each strategy's course on each table, with the best known time of the table."""
    by_table: list[dict[str, Course]] = [{} for _ in tables]
    for name, make in ALL_STRATEGIES.items():
        experience = Experience()
        for found, table in zip(by_table, tables, strict=True):
            found[name] = course(make, table, seed, experience if session else Experience())
    runs: dict[str, list[tuple[Course, float]]] = defaultdict(list)
    for courses, table in zip(by_table, tables, strict=True):
        best_us = min(table.best_us, *(each.best_us[-1] for each in courses.values()))
        if table.in_order is not None:
            bound = _omniscient(table.in_order())
            courses["omniscient"] = course(bound, table, seed, Experience())
        for name, each in courses.items():
            runs[name].append((each, best_us))
    return runs


def _omniscient(in_order: Sequence[Config]) -> StrategyFactory:
    def made(problem: SearchProblem, rng: random.Random) -> InOrder:
        del problem, rng
        return InOrder(in_order)

    return made


def judged(runs: Mapping[str, Sequence[tuple[Course, float]]]) -> dict[str, dict[str, Any]]:
    """The figures of all strategies, and their distance from two of them."""
    found = {name: figures(each) for name, each in runs.items()}
    for name, values in found.items():
        for base in ("exhaustive", "random"):
            if name != base:
                values[f"above_{base}"] = above(runs[name], runs[base])
        if name != "random":
            means = {n: each[0] for n, each in values["above_random"].items()}
            values["loses_to_random"] = [int(n) for n, mean in means.items() if mean > 0.0]
    return found


def above(
    runs: Sequence[tuple[Course, float]], base: Sequence[tuple[Course, float]]
) -> dict[str, list[float]]:
    """By how much a strategy's regret is higher than another's after each number of trials.

    It is the mean over the same problems, with its 95 % interval.
    """
    found = {}
    for trials in TRIALS:
        pairs = zip(_regrets(runs, trials), _regrets(base, trials), strict=True)
        found[str(trials)] = _interval([own - other for own, other in pairs])
    return found


def _regrets(runs: Sequence[tuple[Course, float]], trials: int) -> list[float]:
    return [each.best_us[min(trials, len(each.best_us)) - 1] / best_us for each, best_us in runs]


def _interval(values: Sequence[float]) -> list[float]:
    """The mean, and its 95 % interval."""
    if not all(map(math.isfinite, values)):
        return [math.inf] * 3  # every trial of some search failed
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return [round(mean, 4), round(mean - half, 4), round(mean + half, 4)]


def figures(runs: Sequence[tuple[Course, float]]) -> dict[str, Any]:
    """The mean regret after each number of trials with its 95 % interval, and the cost of it."""
    regret = {str(trials): _interval(_regrets(runs, trials)) for trials in TRIALS}
    near = [_trials_until_near(each, best_us) for each, best_us in runs]
    spent = [len(each.best_us) for each, _ in runs]
    own_ms = sum(each.seconds for each, _ in runs) * 1e3
    first_ms = [1e3 * each.first_seconds for each, _ in runs if each.first_seconds is not None]
    of_eight = {}
    if first_ms:
        per_trial = round(statistics.fmean(first_ms) / BATCH, 3)
        of_eight = {"processor_ms_per_trial_of_the_first_eight": per_trial}
    return {
        "regret": regret,
        "trials_until_within_2_percent": statistics.median(near),
        "of_nine_in_ten": sorted(near)[math.ceil(0.9 * len(near)) - 1],
        "trials_spent": round(statistics.fmean(spent), 1),
        "processor_ms_per_trial": round(own_ms / sum(spent), 3),
        **of_eight,
    }


def _trials_until_near(found: Course, best_us: float) -> float:
    times_us = enumerate(found.best_us, 1)
    return next((n for n, us in times_us if us <= NEAR * best_us), math.inf)


def draw(found: Mapping[str, Mapping[str, Any]]) -> None:
    """A panel for each kind of table: regret by trials, with intervals."""
    columns = 4
    rows = math.ceil(len(found) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, 4 * rows), layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for axes in panels[len(found) :]:
        axes.remove()
    for axes, (kind, by_strategy) in zip(panels, found.items(), strict=False):
        for name, values in by_strategy.items():
            mean, low, high = zip(*values["regret"].values(), strict=True)
            axes.plot(TRIALS, mean, marker="o", markersize=3, label=name)
            axes.fill_between(TRIALS, low, high, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set_xticks(TRIALS, labels=map(str, TRIALS))
        axes.set(title=kind, xlabel="trials", ylabel="best so far / best of the table")
        axes.grid(alpha=0.3)
    most = max(range(len(found)), key=lambda index: len(list(found.values())[index]))
    panels[most].legend()
    figure.savefig(RESULTS / "search_arena.png", dpi=110)


def main() -> None:
    """Run the arena, record and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    real = real_tables(lambda _: ANALYTICAL)
    learned = real_tables(learned_models())
    near = with_neighbours(real)
    modelled = virtual_gpu_tables()

    def drawn(tables: Sequence[Table]) -> Callable[[int], Sequence[Table]]:
        return lambda seed: random.Random(seed).sample(tables, _DRAWN)

    kinds: dict[str, Callable[[int], Sequence[Table]]] = {
        "rtx_2080_ti": drawn(real),
        "rtx_2080_ti, session": drawn(real),
        "rtx_2080_ti, learned": drawn(learned),
        "rtx_2080_ti, neighbours": drawn(near),
        "analytical": other_device,
        "analytical, session": other_device,
        "analytical, driver": lambda seed: with_earlier(
            other_device(seed), other_device(seed), seed
        ),
        "analytical, device": lambda seed: with_earlier(
            other_device(seed), other_device(seed + 1000), seed
        ),
        "analytical, listed": lambda seed: [each.listed for each in other_device(seed)],
        "virtual_gpu": drawn(modelled),
        "alike": alike_device,
        "alike, session": alike_device,
    }
    found = {}
    for kind, tables_of in kinds.items():
        runs: dict[str, list[tuple[Course, float]]] = defaultdict(list)
        for seed in seeds:
            session = kind.endswith("session")
            for name, each in compared(tables_of(seed), seed, session=session).items():
                runs[name] += each
        found[kind] = judged(runs)
        print(kind, "done", flush=True)
    draw(found)
    write(
        "search_arena",
        found,
        target="trials until within 2 % of the best, median: a quarter of exhaustive's; 1 ms a "
        "trial",
    )


if __name__ == "__main__":
    main()
