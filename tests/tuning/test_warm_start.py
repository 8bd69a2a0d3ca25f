"""What was measured of one problem is known to the searches of others, in and between sessions."""

from __future__ import annotations

import random
from pathlib import Path

from boltgen.families.family import Level
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.session import Session
from boltgen.tuning.strategies import STRATEGIES
from boltgen.tuning.strategies.strategy import SearchProblem, Strategy
from tests.tuning.fakes import FakeBench

FIRST = Workload.of(Gemm(m=1024, n=1024, k=1024))
NEAR = Workload.of(Gemm(m=2048, n=1024, k=1024))
FAR = Workload.of(Gemm(m=64, n=64, k=64))


def searched(
    database: Database, folder: Path, *workloads: Workload, budget: int = 16
) -> list[SearchProblem]:
    """The problems of a session, as its strategies are given them."""
    asked: list[SearchProblem] = []

    def spied(problem: SearchProblem, rng: random.Random) -> Strategy:
        asked.append(problem)
        return STRATEGIES["model-first"](problem, rng)

    Session(
        [Task(workload=each) for each in workloads],
        FakeBench(),
        database,
        Budget(trials=budget),
        lock_folder=folder,
        options=SessionOptions(strategy=spied, level=Level.QUICK),
    ).run()
    return asked


def test_searches_of_a_session_share_what_was_measured(tmp_path: Path) -> None:
    with Database(tmp_path / "records.sqlite") as database:
        asked = searched(database, tmp_path, FIRST, FAR)
    assert {problem.workload for problem in asked} == {FIRST, FAR}
    assert len({id(problem.experience) for problem in asked}) == 1
    assert all(each in asked[0].experience for each in (FIRST, FAR))


def test_a_session_recalls_what_its_device_said_of_neighbours(tmp_path: Path) -> None:
    with Database(tmp_path / "records.sqlite") as database:
        searched(database, tmp_path, FIRST)
        (near, *_) = searched(database, tmp_path, NEAR, budget=1)
        (far, *_) = searched(database, tmp_path, FAR, budget=1)
    assert FIRST in near.experience
    assert FIRST not in far.experience
