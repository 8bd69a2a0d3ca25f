"""Section models: the tuner itself, with kernels that are there: how long, and whether again so."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.items import SOURCE, Tuning
from benchmarks.gpu.rig import MODELLED, FatalError, Rig
from boltgen.families.source import kernel_symbol
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.workload import AnyProblem
from boltgen.measure.protocol import Policy, Request, Setup
from boltgen.measure.worker import Workplace, answer
from boltgen.tuning.budget import Budget
from boltgen.tuning.database import Database
from boltgen.tuning.outcome import DeviceIdentity, Failure, Fault, Outcome, Timing, Trial
from boltgen.tuning.session import Session, SessionReport

# Two sessions agree where the one's winner is, in the other, within this of its best.
_TOLERANCE = 0.02
_MISSING = Failure(fault=Fault.NOT_RECORDED, reason="the bundle has no such kernel")


@dataclass(slots=True)
class PackedBench:
    """A bench (`boltgen.tuning.outcome.Bench`) of this process's device and the bundle's kernels.

    `missing` counts trials whose kernels the bundle has not: those with epilogues that only a
    compiler makes.
    """

    rig: Rig
    place: Workplace
    missing: int = 0
    lock_name: str | None = None

    @property
    def device(self) -> DeviceIdentity:
        """The rig's."""
        return self.rig.device

    @property
    def toolchain(self) -> str:
        """What the bundle was made with."""
        return self.rig.toolchain

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Each trial with its outcome; those of one problem together, whose operands then stay.

        Raises:
            FatalError: one took the device with it.
        """
        places: dict[tuple[AnyProblem, Epilogue], int] = {}
        for trial in trials:
            places.setdefault((trial.problem, trial.epilogue), len(places))
        for trial in sorted(trials, key=lambda one: places[one.problem, one.epilogue]):
            yield trial, self._measure(trial)

    def _measure(self, trial: Trial) -> Outcome:
        symbol = kernel_symbol(trial.spec(self.device.arch))
        if self.rig.kernels.get(symbol, SOURCE).endswith(SOURCE):
            self.missing += 1
            return _MISSING
        told = answer(self.place, Request.of(trial, self.rig.library(symbol), symbol))
        if told.fatal and isinstance(told.outcome, Failure):
            raise FatalError(f"{symbol}: {told.outcome.reason}")
        return told.outcome

    def close(self) -> None:
        """Give the memory back; harmless when done twice."""
        self.place.forget_operands()


@dataclass(frozen=True, slots=True)
class _Tuned:
    """A session's report, and the times of each task's launches."""

    report: SessionReport
    times_us: tuple[dict[Any, float], ...] = field(repr=False)


def run_tuning(rig: Rig, item: Tuning) -> dict[str, Any]:
    """Two sessions, each with an empty database: their seconds, and on how many tasks they agree.

    Raises:
        FatalError: a kernel took the device with it.
    """
    is_modelled = rig.turns.modelled
    setup = Setup(ordinal=0, profiler="", runtime="", policy=MODELLED if is_modelled else Policy())
    place = Workplace(profiler=rig.profiler, setup=setup, budget_bytes=rig.budget_bytes)
    bench = PackedBench(rig, place)
    try:
        first, second = (_session(bench, item) for _ in range(2))
    finally:
        bench.close()
        if place.scratch[0]:
            rig.profiler.release(place.scratch[0])
    agreeing, timed = agreement(first.times_us, second.times_us)
    seconds = [round(one.report.seconds, 1) for one in (first, second)]
    tasks = len(first.report.results)
    return {
        "tuning_s": seconds,
        "stopped": [one.report.stopped for one in (first, second)],
        "measured": [one.report.measured for one in (first, second)],
        "missing": bench.missing,
        "tasks": tasks,
        "timed": timed,
        "agreeing": agreeing,
        "verdict": f"{timed} of {tasks} products tuned in {seconds[0]} s and {seconds[1]} s; the "
        f"same winner, or one within {_TOLERANCE:.0%}, for {agreeing}; "
        f"{bench.missing} launches of kernels that only a compiler makes",
    }


def agreement(
    first: Sequence[dict[Any, float]], second: Sequence[dict[Any, float]]
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


def _session(bench: PackedBench, item: Tuning) -> _Tuned:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Database(folder / "records.sqlite") as database:
            budget = Budget(seconds=item.most_s)
            session = Session(item.tasks, bench, database, budget, lock_folder=folder)
            report = session.run()
            times = tuple(
                {
                    config: outcome.median_us
                    for config, outcome in database.outcomes(
                        result.task.problem, result.task.epilogue, bench.device, bench.toolchain
                    ).items()
                    if isinstance(outcome, Timing)
                }
                for result in report.results
            )
    return _Tuned(report, times)
