"""The recorded device: replays a table, measures nothing, is kept apart from what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.errors import TuningError
from boltgen.families.family import Level
from boltgen.ir.outcome import DeviceKind, Fault, Timing
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.device.replay import RecordedBench
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.session import Session
from tests.tuning.fakes import FakeBench, formula_us
from tests.tuning.samples import A100, CONFIG, NO_LAUNCH, TOOLS, record, timing
from tests.tuning.test_session import TASKS


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """What a session on a fake device measured."""
    with Database(tmp_path / "measured.sqlite") as database:
        Session(TASKS, FakeBench(), database, Budget(trials=10_000), lock_folder=tmp_path).run()
        write_records(tmp_path / "table.jsonl.gz", database.records())
    return tmp_path / "table.jsonl.gz"


def test_a_session_on_a_table_finds_what_the_measuring_one_found(
    table: Path, tmp_path: Path
) -> None:
    bench = RecordedBench(table, "sm_80")
    assert bench.device == replace(A100, kind=DeviceKind.RECORDED)
    assert bench.toolchain == TOOLS
    with Database(tmp_path / "replayed.sqlite") as database:
        session = Session(TASKS, bench, database, Budget(trials=10_000), lock_folder=tmp_path)
        report = session.run()
        for result in report.results:
            assert result.best is not None
            assert result.best.config.stages == 4
        for each in database.records():
            assert each.outcome == timing(formula_us(each.trial))
            assert each.device.kind is DeviceKind.RECORDED


def test_what_is_not_recorded_says_nothing_of_the_candidate(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write_records(path, [record(20.0)])
    bench = RecordedBench(path, "sm_80")
    other = replace(record().trial, config=replace(CONFIG, stages=4))
    (_, known), (_, unknown) = bench.run([record().trial, other])
    assert known == timing(20.0)
    assert not isinstance(unknown, Timing)
    assert unknown.fault is Fault.NOT_RECORDED
    assert "one.jsonl has no such record" in unknown.reason
    with Database(tmp_path / "db.sqlite") as database:
        full = SessionOptions(level=Level.FULL)
        report = Session(
            TASKS, bench, database, Budget(trials=5), lock_folder=tmp_path, options=full
        ).run()
        assert report.measured == len(list(database.records())) == 1
        assert report.failed == 0
    bench.close()


def test_the_newest_of_several_records_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, [record(30.0, after_s=5), record(NO_LAUNCH, after_s=9), record(20.0)])
    ((_, outcome),) = RecordedBench(path, "sm_80").run([record().trial])
    assert outcome == NO_LAUNCH


def test_a_table_is_of_one_device_and_toolchain(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    other = TOOLS.replace("CUTLASS 4.2.0", "CUTLASS 4.3.0")
    write_records(path, [record(20.0), record(21.0, toolchain=other)])
    with pytest.raises(TuningError, match=r"one sm_80 device and one toolchain.*(\n.*)*4\.3\.0"):
        RecordedBench(path, "sm_80")
    with pytest.raises(TuningError, match=r"r\.jsonl must have records of one sm_75.*has none"):
        RecordedBench(path, "sm_75")
