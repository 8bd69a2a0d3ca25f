"""Section models: time the tuner itself with compiled kernels, and check that it repeats its
choice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.items import Tuning
from benchmarks.gpu.rig import MODELLED, FatalError, Rig
from boltgen.bench.results import Form
from boltgen.families.family import Config
from boltgen.families.source import kernel_symbol
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity, Failure, Fault, Outcome
from boltgen.measure.protocol import Policy, Request, Setup
from boltgen.measure.worker import Workplace, answer
from boltgen.problems.workload import Workload
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.report import SessionReport
from boltgen.tuning.session.session import Session

# Two sessions agree where the one's winner is, in the other, within this of its best.
_TOLERANCE = 0.02
_MISSING = Failure(fault=Fault.NOT_RECORDED, reason="the bundle has no such kernel")


@dataclass(slots=True)
class PackedBench:
    """A `tuning.device.bench.Bench` of this process's device and the bundle's kernels.

    `missing` counts trials whose kernels the bundle has not: those with epilogues that only a
    compiler makes.
    """

    rig: Rig
    place: Workplace
    device: DeviceIdentity
    toolchain: str
    missing: int = 0
    lock_name: str | None = None

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Yield each trial with its outcome, grouped by workload, so that operands stay in place.

        Raises:
            FatalError: one took the device with it.
        """
        places: dict[Workload, int] = {}
        for trial in trials:
            places.setdefault(trial.workload, len(places))
        for trial in sorted(trials, key=lambda one: places[one.workload]):
            yield trial, self._measure(trial)

    def _measure(self, trial: Trial) -> Outcome:
        symbol = kernel_symbol(trial.spec(self.device.arch))
        found = self.rig.state.find(symbol)
        if found is None or found.error:
            self.missing += 1
            return _MISSING
        told = answer(self.place, Request.of(trial, found.path, symbol))
        if told.fatal and isinstance(told.outcome, Failure):
            raise FatalError(f"{symbol}: {told.outcome.reason}")
        return told.outcome

    def kernel(self, trial: Trial) -> str:
        """Look up the content of its kernel, which is built."""
        return self.rig.built(kernel_symbol(trial.spec(self.device.arch))).content

    def close(self) -> None:
        """Give the memory back; harmless when done twice."""
        self.place.forget_operands()


def run_tuning(rig: Rig, item: Tuning) -> Form:
    """Two sessions, each with an empty database: their seconds, and on how many tasks they agree.

    Raises:
        FatalError: a kernel took the device with it.
    """
    is_modelled = rig.turns.modelled
    setup = Setup(ordinal=0, profiler="", runtime="", policy=MODELLED if is_modelled else Policy())
    place = Workplace(profiler=rig.profiler, setup=setup, budget_bytes=rig.place().budget_bytes)
    toolchain = rig.built(item.kernels[0]).toolchain
    bench = PackedBench(rig, place, rig.device, toolchain)
    try:
        first, second = (_session(bench, item) for _ in range(2))
    finally:
        bench.close()
        if place.scratch[0]:
            rig.profiler.release(place.scratch[0])
    reports = (first[0], second[0])
    agreeing, timed = agreement(first[1], second[1])
    seconds = [round(report.seconds, 1) for report in reports]
    tasks = len(reports[0].results)
    return {
        "tuning_s": seconds,
        "stopped": [report.stopped for report in reports],
        "measured": [report.measured for report in reports],
        "missing": bench.missing,
        "tasks": tasks,
        "timed": timed,
        "agreeing": agreeing,
        "verdict": f"{timed} of {tasks} products tuned in {seconds[0]} s and {seconds[1]} s; the "
        f"same winner, or one within {_TOLERANCE:.0%}, for {agreeing}; "
        f"{bench.missing} launches of kernels that only a compiler makes",
    }


def agreement(
    first: Sequence[Mapping[Any, float]], second: Sequence[Mapping[Any, float]]
) -> tuple[int, int]:
    """On how many tasks two sessions agree, of how many that both have times of.

    Each has, for every task, the times of its configurations.
    """
    agreeing = timed = 0
    for one, other in zip(first, second, strict=True):
        if not one or not other:
            continue
        timed += 1
        winner = min(one, key=lambda config: (one[config], config))
        found = other.get(winner, float("inf"))
        agreeing += found <= (1.0 + _TOLERANCE) * min(other.values())
    return agreeing, timed


def _session(bench: PackedBench, item: Tuning) -> tuple[SessionReport, list[dict[Config, float]]]:
    """Run a session; its report, and the times of each task's launches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Database(folder / "records.sqlite") as database:
            budget = Budget(seconds=item.most_s)
            report = Session(item.tasks, bench, database, budget, lock_folder=folder).run()
            times_us = [
                {config: timed.median_us for config, timed in found.items()}
                for found in (
                    database.times(result.task.workload, bench.device, bench.toolchain)
                    for result in report.results
                )
            ]
    return report, times_us
