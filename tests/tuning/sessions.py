"""A session of three tasks over a fake bench, for tests."""

from __future__ import annotations

from benchmarks.cases.resnet50_layers import biased
from boltgen.arch import arch_named
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Failure, Fault
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.progress import Quiet
from boltgen.tuning.session.session import Session
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import GEMM

PLAIN = Task(workload=GEMM)
RELU = Task(workload=Workload.of(GEMM.single.problem, biased(relu=True)), occurrences=3)
CONV = Task(
    workload=Workload.of(
        Conv2d(n=8, h=28, w=28, c=64, k=256, r=3, s=3, padding=(1, 1, 1, 1)), biased(relu=True)
    )
)
TASKS = (PLAIN, RELU, CONV)
LOST = Failure(fault=Fault.DEVICE_LOST, reason="the GPU has fallen off the bus")
ALL = Budget(trials=10_000)
SM80 = arch_named("sm_80")


def session(bench: FakeBench, database: Database, budget: Budget = ALL, **more) -> Session:
    tasks = more.pop("tasks", TASKS)
    more.setdefault("lock_folder", database.path.parent / "locks")
    return Session(tasks, bench, database, budget, **more)


class Heard(Quiet):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.bests: list[tuple[float, int]] = []
        self.begun = self.ended = 0

    def begin(self, budget: Budget, tasks: int) -> None:
        self.begun += 1

    def measured(self, trial: Trial, outcome: object, best_us: float, timed: int) -> None:
        self.bests.append((best_us, timed))

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def end(self) -> None:
        self.ended += 1
