"""Compare schedulers, which share trials between the problems of a model, on the same tables of
times.

    python -m benchmarks.scheduler_arena [--seeds N]

A model is sixteen of the RTX 2080 Ti's problems (`benchmarks/data`), each run once to six times;
each seed is another model. The figure is the model's time so far over the time of all problems'
best, after so many trials together, by `round robin`, by `weight` (each problem's share of the
model's time) and by `gradient` (Ansor's, for the total time).
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.arena import ALL_STRATEGIES
from benchmarks.arena.tables import Table, real_tables
from benchmarks.record import write
from boltgen.cost.model import ANALYTICAL
from boltgen.tuning.choice.select import Task
from boltgen.tuning.session.ansor_scheduler import Gradient
from boltgen.tuning.session.scheduler import ByWeight, Scheduler, TaskState
from boltgen.tuning.session.search import Search

PROBLEMS = 16
TRIALS = (32, 64, 128, 256)
# The trials that a session grants before it looks at outcomes again.
BATCH = 16


class RoundRobin:
    """The same for everyone."""

    def next_task(self, tasks: Sequence[TaskState]) -> int | None:
        """Who had the fewest trials."""
        left = [index for index, task in enumerate(tasks) if not task.exhausted]
        return min(left, key=lambda index: (tasks[index].trials, index), default=None)


SCHEDULERS: dict[str, Callable[[int], Scheduler]] = {
    "round robin": lambda _: RoundRobin(),
    "weight": lambda _: ByWeight(),
    "gradient": lambda seed: Gradient(seed=seed),
}


def slowdowns(
    tables: Sequence[Table], uses: Sequence[int], scheduler: Scheduler, strategy: str, seed: int
) -> list[float]:
    """The model's time over its best one after each of `TRIALS`."""
    searches = [
        Search(
            Task(workload=table.problem.workload),
            ALL_STRATEGIES[strategy](table.problem, random.Random(f"{seed}/{table.name}")),
            table.problem.spaces,
            {},
            expected_us=table.problem.predicted_us(table.problem.candidates[:1])[0],
            uses=(float(count),),
        )
        for table, count in zip(tables, uses, strict=True)
    ]
    best_us = sum(count * table.best_us for table, count in zip(tables, uses, strict=True))
    found: list[float] = []
    spent = 0
    while len(found) < len(TRIALS):
        grants = _grants([each.state for each in searches], scheduler)
        for index, count in grants.items():
            for trial in searches[index].propose(count):
                searches[index].observe(trial.config, tables[index].answer(trial.config))
                spent += 1
        time_us = sum(
            count * each.state.time_us for each, count in zip(searches, uses, strict=True)
        )
        while len(found) < len(TRIALS) and (spent >= TRIALS[len(found)] or not grants):
            found.append(time_us / best_us)
    return found


def _grants(states: list[TaskState], scheduler: Scheduler) -> Counter[int]:
    grants: Counter[int] = Counter()
    for _ in range(BATCH):
        chosen = scheduler.next_task(states)
        if chosen is None:
            break
        grants[chosen] += 1
        states[chosen] = replace(states[chosen], trials=states[chosen].trials + 1)
    return grants


def main() -> None:
    """Run the arena and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    tables = real_tables(lambda _: ANALYTICAL)
    figures: dict[str, dict[str, Any]] = defaultdict(dict)
    for strategy in ("exhaustive", "model-first", "evolutionary", "random"):
        for name, scheduler_of in SCHEDULERS.items():
            runs = []
            for seed in range(seeds):
                rng = random.Random(seed)
                chosen = rng.sample(tables, PROBLEMS)
                uses = [rng.choice((1, 1, 2, 3, 6)) for _ in chosen]
                runs.append(slowdowns(chosen, uses, scheduler_of(seed), strategy, seed))
            means = [round(statistics.fmean(each), 4) for each in zip(*runs, strict=True)]
            figures[strategy][name] = dict(zip(map(str, TRIALS), means, strict=True))
    write("scheduler_arena", figures, target="gradient no worse than weight for the total")


if __name__ == "__main__":
    main()
