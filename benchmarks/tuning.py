"""The tuning loop's own cost: sessions, the database, selection. No kernel is compiled or run.

Times are given by formulas and a made-up device: what is measured is boltgen's own work.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.cases.resnet50_layers import resnet50_tasks
from benchmarks.record import repeat_seconds, summary, write
from boltgen.arch import arch_named
from boltgen.families.family import Level
from boltgen.families.registry import candidates
from boltgen.families.trial import Trial
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Outcome, Timing
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.measured_costs import MeasuredCosts
from boltgen.tuning.choice.select import ModelCosts, distinct, select
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.records import Record
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.session import Session

REPEATS = 5
TRIALS = 1000
RECORDS = 1_000_000
WRITERS, RECORDS_EACH = 8, 10_000
ARCH = arch_named("sm_80")
TOOLCHAIN = "no toolchain: a benchmark"
DEVICE = DeviceIdentity(
    kind=DeviceKind.CUDA,
    name="no device: a benchmark",
    arch=ARCH.name,
    sm_count=ARCH.sm_count,
    clock_mhz=ARCH.boost_mhz,
    memory_clock_mhz=1215,
    memory_bytes=40 << 30,
    driver="none",
)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def timing(median_us: float) -> Timing:
    return Timing(
        median_us=median_us,
        p20_us=0.99 * median_us,
        p80_us=1.01 * median_us,
        low_us=0.99 * median_us,
        high_us=1.01 * median_us,
        repeats=20,
        launches=10,
        cold_l2=True,
        clock_mhz=1410.0,
    )


def content_of(trial: Trial) -> str:
    return digest("no PTX: a benchmark", trial.spec(ARCH.name))


class InstantBench:
    """Answers at once: all of a session's time is its own."""

    device, toolchain, lock_name = DEVICE, TOOLCHAIN, None

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """A made-up time for each."""
        for number, trial in enumerate(trials):
            yield trial, timing(50.0 + number % 17)

    def kernel(self, trial: Trial) -> str:
        """A made-up content."""
        return content_of(trial)

    def close(self) -> None:
        """Nothing to stop."""


def session_overhead(folder: Path) -> dict[str, object]:
    """Wall seconds of a session of 1,000 trials on a device that takes no time."""
    numbers = itertools.count()

    def run() -> None:
        with Database(folder / f"session-{next(numbers)}.sqlite") as database:
            report = Session(
                resnet50_tasks(32),
                InstantBench(),
                database,
                Budget(trials=TRIALS),
                lock_folder=folder,
                options=SessionOptions(level=Level.FULL),
            ).run()
        assert report.measured == TRIALS

    seconds = repeat_seconds(run, REPEATS)
    started = time.process_time()
    run()
    processor = time.process_time() - started
    return {"trials": TRIALS, "seconds": summary(seconds), "processor_seconds": processor}


def many_records() -> Iterator[Record]:
    """A million: 2,500 problems, 400 trials of each, with the configurations of a real problem."""
    rng = random.Random(7)
    configs = candidates(Workload.of(Gemm(m=512, n=512, k=4096)), ARCH)
    chosen = rng.sample(configs, 400)
    keys: dict[object, str] = {}
    for number in range(RECORDS // 400):
        problem = Gemm(m=8 * (number % 50 + 1), n=8 * (number // 50 + 1), k=4096)
        workload = Workload.of(problem)
        for place, config in enumerate(chosen):
            trial = Trial(workload=workload, config=config)
            if config not in keys:
                keys[config] = content_of(trial)
            yield Record(
                trial=trial,
                kernel=keys[config],
                device=DEVICE,
                toolchain=TOOLCHAIN,
                outcome=timing(rng.uniform(10.0, 100.0)),
                measured_at=START + timedelta(seconds=400 * number + place),
            )


def large_database(folder: Path) -> dict[str, object]:
    """The best configuration of a problem among a million records; each look-up of another one."""
    path = folder / "large.sqlite"
    started = time.perf_counter()
    with Database(path) as database:
        added = database.add(many_records())
    filled = time.perf_counter() - started
    assert added == RECORDS
    opening = repeat_seconds(lambda: Database(path).close(), REPEATS)
    rng = random.Random(11)
    with Database(path) as database:
        size = database.size_bytes

        def look_up() -> None:
            problem = Gemm(m=8 * rng.randint(1, 50), n=8 * rng.randint(1, 50), k=4096)
            assert database.best(Workload.of(problem), DEVICE, TOOLCHAIN) is not None

        seconds = repeat_seconds(look_up, 200)
    return {
        "records": RECORDS,
        "megabytes": round(size / 1e6, 1),
        "seconds_to_fill": filled,
        "seconds_to_open": summary(opening),
        "best_of_a_problem_milliseconds": {
            name: 1000 * value for name, value in summary(seconds).items() if name != "all"
        },
    }


def write_some(path: Path, writer: int) -> None:
    workload = Workload.of(Gemm(m=512, n=512, k=512))
    configs = candidates(workload, ARCH)
    with Database(path) as database:
        for number in range(RECORDS_EACH):
            config = configs[number % len(configs)]
            trial = Trial(workload=workload, config=config)
            record = Record(
                trial=trial,
                kernel=f"{number % len(configs):064x}",
                device=replace(DEVICE, driver=str(writer % 2)),
                toolchain=TOOLCHAIN,
                outcome=timing(10.0 + writer + number),
                measured_at=START + timedelta(microseconds=number),
            )
            assert database.add([record]) == 1


def concurrent_writers(folder: Path) -> dict[str, object]:
    """Eight processes, 10,000 records each, every record in a transaction of its own."""
    path = folder / "shared.sqlite"
    context = multiprocessing.get_context("spawn")
    started = time.perf_counter()
    writers = [context.Process(target=write_some, args=(path, w)) for w in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    seconds = time.perf_counter() - started
    with Database(path) as database:
        found = list(database.records())
        counted = sum(source.records for source in database.sources())
        assert database.set_aside is None
    # Each writer's every time, whole: none lost, none torn, none twice.
    expected = sorted(10.0 + w + n for w in range(WRITERS) for n in range(RECORDS_EACH))
    times = sorted(r.outcome.median_us for r in found if isinstance(r.outcome, Timing))
    return {
        "writers": WRITERS,
        "records_each": RECORDS_EACH,
        "failed_writers": sum(writer.exitcode != 0 for writer in writers),
        "found": len(found),
        "counted": counted,
        "all_as_written": times == expected,
        "seconds": seconds,
    }


def warm_selection(folder: Path) -> dict[str, object]:
    """ResNet-50's kernels from a database that knows each task, opened anew each time."""
    path = folder / "warm.sqlite"
    with Database(path) as database:
        tasks = distinct(resnet50_tasks(32))
        Session(tasks, InstantBench(), database, Budget(trials=10_000), lock_folder=folder).run()
        records = sum(source.records for source in database.sources())

    def run() -> None:
        with Database(path) as database:
            costs = MeasuredCosts([database], ARCH, TOOLCHAIN, None, ModelCosts(ARCH))
            decisions = select(resnet50_tasks(32), ARCH, costs)
        assert all("measured on" in decision.origin for decision in decisions)

    return {"records": records, "seconds": summary(repeat_seconds(run, REPEATS))}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="boltgen-bench-") as name:
        folder = Path(name)
        write(
            "tuning",
            {
                "session_overhead": session_overhead(folder),
                "warm_selection": warm_selection(folder),
                "concurrent_writers": concurrent_writers(folder),
                "large_database": large_database(folder),
            },
            "1,000 trials 2 s; ResNet-50 from a warm database 1 s; eight writers of 10,000 records "
            "lose none; best of a problem among 1,000,000 records 10 ms",
        )


if __name__ == "__main__":
    main()
