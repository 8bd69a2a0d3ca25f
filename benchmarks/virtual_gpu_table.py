"""A table of the virtual GPU's modelled times, and what cost models say of problems held out.

    python -m benchmarks.virtual_gpu_table [--record]

With `--record` the table in `benchmarks/data` is made anew. The tuner's own bench compiles each
kernel by nvcc, and the virtual GPU executes, checks and times it in its model. The kernels come
from a standard library, and the problems are small products of several shapes. Swizzles and slices
of K are drawn from the enumerator's lists.

Without `--record` the table is judged. Models are trained on some of the problems and predict the
times of the others. Each problem then has a rank correlation of predicted and modelled times, and
its fastest kernel is among the first ten or not. `stacked` is what `boltgen db train` makes: trees
that correct the analytical model. `trees alone` learn times without it. `trees that rank` learn
which of two kernels is faster. The problems are divided into folds in one way, but for the means
over several ways.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

import numpy as np
from scipy.stats import spearmanr

from benchmarks.arena.tables import VIRTUAL_GPU
from benchmarks.harness.cross_validation import cross_validated
from benchmarks.model_against_data import DATA
from benchmarks.record import write
from boltgen.arch import arch_named
from boltgen.cost.learned import Example, regrets
from boltgen.families.family import Level
from boltgen.families.registry import FAMILIES, compiled, predict
from boltgen.families.trial import Trial
from boltgen.measure.bench import BenchOptions, open_vgpu
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from boltgen.tuning.choice.examples import examples
from boltgen.tuning.database.exchange import read_records, write_records
from boltgen.tuning.database.records import Record

TABLE = DATA / VIRTUAL_GPU
ARCH = arch_named("sm_80")
# Sizes of problems are drawn evenly in doublings, in steps of 16. A problem has so few operations
# that the virtual GPU computes a launch in a second.
_PROBLEMS, _EXTENTS, _MOST_FLOPS = 128, (16, 2048), 4e8
# Launches that are drawn for each problem.
_LAUNCHES = 32
_FIRST = 10
# Ways to divide problems into folds.
_SPLITS = 6


def sizes() -> list[tuple[int, int, int]]:
    """M, N and K of each problem."""
    rng = random.Random(0)
    low, high = map(math.log, _EXTENTS)
    found: dict[tuple[int, int, int], None] = {}
    while len(found) < _PROBLEMS:
        m, n, k = (16 * round(math.exp(rng.uniform(low, high)) / 16) for _ in range(3))
        if 2.0 * m * n * k <= _MOST_FLOPS:
            found[m, n, k] = None
    return list(found)


def trials() -> Iterator[Trial]:
    """The launches of the table, problem by problem."""
    for m, n, k in sizes():
        workload = Workload.of(Gemm(m=m, n=n, k=k))
        family = FAMILIES.named("cutlass2")
        held = family.held(workload, ARCH, Level.STANDARD)
        listed = family.space(workload, ARCH).candidates
        launches = [config for config in listed if compiled(config) in held]
        drawn = random.Random(f"{m} {n} {k}").sample(launches, min(_LAUNCHES, len(launches)))
        yield from (Trial(workload=workload, config=config) for config in sorted(drawn))


def record() -> None:
    """Time all launches, and write their outcomes."""
    bench = open_vgpu(ARCH.name, BenchOptions(settings=settings_from()))
    try:
        found = [
            Record(
                trial=trial,
                kernel=bench.kernel(trial),
                device=bench.device,
                toolchain=bench.toolchain,
                outcome=outcome,
                measured_at=datetime.now(timezone.utc),
            )
            for trial, outcome in bench.run(list(trials()))
        ]
    finally:
        bench.close()
    print(f"{write_records(TABLE, found)} records in {TABLE.name}")


def table() -> list[Record]:
    """The records of the table."""
    return list(read_records(TABLE))


def judged(found: Sequence[Example], predicted: np.ndarray) -> dict[str, float]:
    """The mean and least rank correlation of problems, the share of them whose fastest kernel is
    among the first ten, and the mean time of the first pick over the fastest.
    """
    members: dict[Workload, list[int]] = defaultdict(list)
    for index, example in enumerate(found):
        members[example.workload].append(index)
    ranks, recalled = [], []
    for numbers in members.values():
        times_us = np.array([found[n].time_us for n in numbers])
        expected = predicted[numbers]
        ranks.append(float(spearmanr(expected, times_us).statistic))
        first = np.argsort(expected, kind="stable")[:_FIRST]
        recalled.append(bool(times_us[first].min() == times_us.min()))
    return {
        "rank_correlation": round(statistics.fmean(ranks), 4),
        "least_rank_correlation": round(min(ranks), 4),
        "best_in_first_ten": round(statistics.fmean(recalled), 4),
        "regret_of_first_pick": round(statistics.fmean(regrets(found, predicted)), 4),
    }


def _mean(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.fmean(e[name] for e in figures), 4) for name in figures[0]}


def main() -> None:
    """Record the table, or judge it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    if parser.parse_args().record:
        record()
        return
    found = examples(table())
    analytical = np.log([predict(e.workload, e.config, e.arch).time_us for e in found])
    figures = {
        "problems": len({each.workload for each in found}),
        "times": len(found),
        "analytical": judged(found, analytical),
        "stacked": judged(found, cross_validated(found)),
        f"stacked, mean of {_SPLITS} splits": _mean(
            [judged(found, cross_validated(found, split=split)) for split in range(_SPLITS)]
        ),
        "trees alone": judged(found, cross_validated(found, corrects=False)),
        "trees that rank": judged(found, cross_validated(found, ranks=True)),
    }
    write(
        "virtual_gpu_table",
        figures,
        target="stacked model on held-out problems: rank correlation 0.95, best in its first ten "
        "0.95",
    )


if __name__ == "__main__":
    main()
