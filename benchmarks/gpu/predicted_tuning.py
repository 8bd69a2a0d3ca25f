"""How long the tuner would take where no kernel is to be compiled: predicted, not measured.

A real session runs with its own budget, rounds and finalists, on a bench that launches nothing: a
launch takes what the analytical model says, and a trial as many launches as `measure.timing` plans.
That is the device's time alone. Loading libraries, filling operands, judging outputs and the host's
own work come on top.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from benchmarks.gpu.races import least_bytes
from benchmarks.gpu.timing import operand_copies
from boltgen.arch import Arch
from boltgen.ir.dtypes import DType
from boltgen.ir.workload import Workload
from boltgen.measure.protocol import Policy
from boltgen.measure.timing import FIRST_SAMPLES, launches_of_sample, scratch_bytes, take_samples
from boltgen.tuning.budget import Budget
from boltgen.tuning.database import Database
from boltgen.tuning.model_report import predicted_us
from boltgen.tuning.outcome import DeviceIdentity, DeviceKind, Outcome, Timing, Trial
from boltgen.tuning.padding import PaddingTimes
from boltgen.tuning.select import Task
from boltgen.tuning.session import Session

# More than any session takes: nothing is left out for want of time.
_UNLIMITED = Budget(seconds=1e9)


@dataclass(slots=True)
class _Busy:
    """Adds up how long a device is busy, which empties its cache before each sample."""

    flush_us: float
    total_us: float = 0.0

    def samples_us(self, samples: int, launches: int, once_us: float) -> list[float]:
        """Times of one launch: all equal."""
        self.total_us += samples * (self.flush_us + launches * once_us)
        return [once_us] * samples


def trial_us(once_us: float, copies: int, flush_us: float, policy: Policy) -> float:
    """How long a device is busy with a candidate whose launch takes `once_us`, without noise."""
    busy = _Busy(flush_us)
    busy.samples_us(FIRST_SAMPLES, 1, once_us)
    launches = launches_of_sample(once_us, copies, policy)
    take_samples(
        lambda samples: busy.samples_us(samples, launches, once_us),
        lambda: None,
        policy,
        launches=launches,
        warm_up_us=policy.warm_up_us,
    )
    return busy.total_us


@dataclass
class PredictedBench:
    """A bench (`boltgen.tuning.outcome.Bench`) that knows what its trials would take of a device.

    `least_us` where no time has noise, and `most_us` where all have so much of it that each trial
    takes as many samples as it may. `asked` has the trials in their order.
    """

    arch: Arch
    asked: list[Trial] = field(default_factory=list)
    least_us: float = 0.0
    most_us: float = 0.0
    toolchain: str = field(default="a built library", init=False)
    lock_name: str | None = field(default=None, init=False)

    @property
    def trials(self) -> int:
        """How many launches were tried."""
        return len(self.asked)

    @cached_property
    def device(self) -> DeviceIdentity:
        """None that exists: nobody's measurements are taken for its."""
        return DeviceIdentity(
            kind=DeviceKind.CUDA,
            name=f"{self.arch.device}, predicted",
            arch=self.arch.name,
            sm_count=self.arch.sm_count,
            clock_mhz=self.arch.boost_mhz,
            memory_clock_mhz=0,
            memory_bytes=0,
            driver="none",
        )

    @cached_property
    def _flush_us(self) -> float:
        moves = PaddingTimes(self.arch, DType.F32)
        return moves.move_us(scratch_bytes(self.arch.l2_bytes), launches=1)

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Each trial with the analytical model's time."""
        calm = Policy()
        noisy = replace(calm, least_samples=calm.most_samples)
        for trial in trials:
            if isinstance(trial.problem, Workload | Workload):
                raise TypeError(f"{trial} is no product's")
            once_us = predicted_us(trial, self.arch)
            copies = operand_copies(least_bytes(trial.problem))
            self.asked.append(trial)
            self.least_us += trial_us(once_us, copies, self._flush_us, calm)
            self.most_us += trial_us(once_us, copies, self._flush_us, noisy)
            yield trial, Timing.exact(once_us)

    def close(self) -> None:
        """Nothing to stop."""


def predicted_tuning(
    tasks: Sequence[Task], arch: Arch, budget: Budget = _UNLIMITED
) -> PredictedBench:
    """A session on `tasks` from an empty database, to its end or that of `budget`."""
    bench = PredictedBench(arch)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Database(folder / "records.sqlite") as database:
            Session(tasks, bench, database, budget, lock_folder=folder).run()
    return bench
