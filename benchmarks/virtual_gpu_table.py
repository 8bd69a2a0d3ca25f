"""A table of the virtual GPU's modelled times, and what cost models say of problems held out.

    python -m benchmarks.virtual_gpu_table [--record]

With `--record` the table is made anew (`benchmarks/data`, by the tuner's own bench: compiled by
nvcc, executed, checked, timed in the virtual GPU's model): the kernels of a standard library for
small products of several shapes, with swizzles and slices of K drawn among those that the
enumerator lists. Without, the table is judged: for each problem, by models that were trained on the
others, the rank correlation of predicted and modelled times, and whether the fastest is among the
first ten.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

import numpy as np
from scipy.stats import spearmanr

from benchmarks.arena_tables import VIRTUAL_GPU
from benchmarks.model_against_data import DATA
from benchmarks.record import write
from boltgen.arch import arch_named
from boltgen.cost.learned import Example, cross_validated, regrets
from boltgen.families.family import Level
from boltgen.families.registry import FAMILIES, compiled, predict
from boltgen.families.trial import Trial
from boltgen.ir.problem import Gemm
from boltgen.ir.workload import Workload
from boltgen.measure.bench import BenchOptions, open_vgpu
from boltgen.settings import settings_from
from boltgen.tuning.exchange import read_records, write_records
from boltgen.tuning.model_report import examples
from boltgen.tuning.records import Record

TABLE = DATA / VIRTUAL_GPU
ARCH = arch_named("sm_80")
# Problems, of sizes that are drawn evenly in doublings, in steps of 16; and the most operations of
# one: so few that the virtual GPU computes a launch in a second.
_PROBLEMS, _EXTENTS, _MOST_FLOPS = 128, (16, 2048), 4e8
# Of each problem: launches that are drawn.
_LAUNCHES = 32
_FIRST = 10


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
    """Time all launches, and keep what has a time or failed."""
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
    """Mean rank correlation over problems, how many have their fastest among the first ten, and
    what the first pick costs.
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
        "trees alone": judged(found, cross_validated(found, corrects=False)),
    }
    write(
        "virtual_gpu_table",
        figures,
        target="stacked model on held-out problems: rank correlation 0.95, best in its first ten "
        "0.95",
    )


if __name__ == "__main__":
    main()
