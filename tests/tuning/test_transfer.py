"""What was fast elsewhere comes first, and is measured all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.cost.model import ANALYTICAL
from boltgen.families.family import Config, Level
from boltgen.families.trial import Trial
from boltgen.ir.outcome import DeviceIdentity
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Database
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.candidates import Field
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.transfer import MOST, Elsewhere, fastest, neighbours
from boltgen.tuning.strategies import STRATEGIES
from tests.tuning.fakes import FakeBench, formula_us
from tests.tuning.samples import A100, GEMM, TOOLS, record
from tests.tuning.sessions import ALL, SM80, session

CANDIDATES = Field(GEMM, SM80, Level.STANDARD, ANALYTICAL).opening()
# What the model likes least was fast elsewhere.
SURPRISES = CANDIDATES[-2:]
NEIGHBOUR = Workload.of(Gemm(m=768, n=512, k=512))
NEWER = replace(A100, driver="590.10")
OTHER = replace(A100, name="NVIDIA A100-PCIE-40GB", clock_mhz=1300)
OTHER_ARCH = replace(A100, name="NVIDIA A10", arch="sm_86")


def known(database: Database, workload: Workload, device: DeviceIdentity, tools: str) -> None:
    times_us = dict.fromkeys(CANDIDATES[:4], 100.0) | dict(zip(SURPRISES, (1.0, 2.0), strict=True))
    database.add(
        record(us, workload=workload, config=config, device=device, toolchain=tools)
        for config, us in times_us.items()
    )


@pytest.mark.parametrize(
    ("workload", "device", "tools"),
    [
        (GEMM, NEWER, TOOLS),
        (GEMM, OTHER, TOOLS),
        (GEMM, OTHER_ARCH, TOOLS),
        (GEMM, A100, "nvcc 13.1.0; CUTLASS 4.2.0"),
        (NEIGHBOUR, A100, TOOLS),
        (NEIGHBOUR, OTHER, TOOLS),
    ],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_what_was_fast_elsewhere_is_measured_first(
    name: str, workload: Workload, device: DeviceIdentity, tools: str, database: Database
) -> None:
    known(database, workload, device, tools)
    bench = FakeBench()
    options = SessionOptions(strategy=STRATEGIES[name])
    made = session(bench, database, ALL, tasks=[Task(workload=GEMM)], options=options)
    assert made.report().reused == 0, "nothing of it is known here"
    report = made.run()
    assert [trial.config for trial in bench.trials[:2]] == list(SURPRISES)
    trials = [trial for trial in bench.trials if trial.workload == GEMM]
    assert len(trials) == len(set(trials)) == report.measured, "once each"
    (result,) = report.results
    assert result.best is not None
    assert result.best.timing.median_us == min(map(formula_us, bench.trials))
    assert database.outcomes(GEMM, A100, TOOLS).keys() == {trial.config for trial in trials}


def test_without_other_records_the_order_is_the_strategys(database: Database) -> None:
    known(database, GEMM, A100, TOOLS)
    elsewhere = Elsewhere(database, A100, TOOLS)
    assert elsewhere.first(GEMM, CANDIDATES) == ()
    assert elsewhere.first(NEIGHBOUR, CANDIDATES)[:2] == SURPRISES


def test_the_nearest_device_comes_first(database: Database) -> None:
    known(database, GEMM, OTHER_ARCH, TOOLS)
    fast_here = CANDIDATES[5:7]
    database.add(
        record(us, config=config, device=NEWER)
        for us, config in zip((1.0, 2.0), fast_here, strict=True)
    )
    found = Elsewhere(database, A100, TOOLS).first(GEMM, CANDIDATES)
    assert found == (*fast_here, *SURPRISES)
    assert Elsewhere(database, A100, TOOLS).first(GEMM, CANDIDATES[:7]) == (
        *fast_here,
        *sorted(CANDIDATES[:4])[:2],
    )


def test_the_fastest_half_of_each_table_is_taken() -> None:
    tables: list[dict[Config, float]] = [
        {config: float(us) for us, config in enumerate(CANDIDATES[at : at + 5])}
        for at in (0, 5, 10)
    ]
    assert MOST == 4
    assert fastest(tables, CANDIDATES) == (*CANDIDATES[:2], *CANDIDATES[5:7])
    assert fastest(tables, CANDIDATES[1:3]) == CANDIDATES[1:3]
    assert fastest(tables, ()) == ()


def test_a_neighbour_is_another_size_of_the_same() -> None:
    def gemm(m: int, n: int = 512, **more: object) -> Workload:
        return Workload.of(Gemm(m=m, n=n, k=512, **more))  # type: ignore[arg-type]

    others = [gemm(4096), gemm(512, 4096), gemm(1024), gemm(640), gemm(512), gemm(512, 448)]
    assert neighbours(gemm(512), others) == [gemm(512, 448), gemm(640)]
    two_layers = Workload(layers=gemm(512).layers * 2)
    assert neighbours(gemm(512), [two_layers]) == []


def test_a_trial_of_a_device_names_its_own_workload(tmp_path: Path) -> None:
    """Records of a neighbour are of its kernels: none is found under the workload at hand."""
    with Database(tmp_path / "r.sqlite") as database:
        known(database, NEIGHBOUR, A100, TOOLS)
        bench = FakeBench()
        session(bench, database, Budget(trials=3), tasks=[Task(workload=GEMM)]).run()
        expected = [Trial(workload=GEMM, config=config) for config in SURPRISES]
        assert bench.trials[:2] == expected
        assert len(database.outcomes(GEMM, A100, TOOLS)) == 3
        assert database.workloads().count(GEMM) == database.workloads().count(NEIGHBOUR) == 1
