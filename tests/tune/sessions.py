"""A session of three tasks over a fake bench, for tests."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.tune.budget import Budget
from boltgen.tune.database import Database
from boltgen.tune.outcome import Failure, Fault, Trial
from boltgen.tune.progress import Quiet
from boltgen.tune.select import Task
from boltgen.tune.session import Session
from tests.tune.fakes import FakeBench
from tests.tune.resnet50_layers import biased

PLAIN = Task(problem=Gemm(m=512, n=512, k=512), epilogue=ElementwiseGraph())
RELU = Task(problem=Gemm(m=512, n=512, k=512), epilogue=biased(relu=True), occurrences=3)
CONV = Task(
    problem=Conv2d(n=8, h=28, w=28, c=64, k=256, r=3, s=3, padding=(1, 1, 1, 1)),
    epilogue=biased(relu=True),
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
