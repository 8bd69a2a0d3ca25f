"""The results of a session for its user, per task and in total."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.ir.outcome import DeviceIdentity, Failure
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Best
from boltgen.tuning.rest.tasks import RestResult
from boltgen.tuning.session.course import Improvement


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The results of a task: its best launch, and the numbers of timed and failed launches.

    `course` has the improvements in this session.
    """

    task: Task
    best: Best | None
    timed: int
    failures: tuple[Failure, ...]
    course: tuple[Improvement, ...] = ()

    @property
    def total_us(self) -> float | None:
        """The best time multiplied by the number of runs, in microseconds; None without a time."""
        return self.best.timing.median_us * self.task.occurrences if self.best else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """The outcome of a session on `device`.

    `measured` counts new records, `failed` the failures among them, `reused` the outcomes already
    in the database. `stopped` says why the session ended early, `drift` how the device's clock
    drifted; either may be None. `rest` has TVM's own kernels.
    """

    device: DeviceIdentity
    results: tuple[TaskResult, ...]
    measured: int
    failed: int
    reused: int
    seconds: float
    stopped: str | None
    drift: str | None
    rest: tuple[RestResult, ...] = ()

    @property
    def model_us(self) -> float | None:
        """The time of all runs of all workloads, each alone; None if a workload has no time."""
        products = [each.total_us for each in self.results if not each.task.is_alternative]
        totals = [total_us for total_us in products if total_us is not None]
        return sum(totals) if len(totals) == len(products) else None
