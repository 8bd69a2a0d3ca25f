"""Measurements of earlier versions: their lines and their databases are read as today's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boltgen.errors import RecordError
from boltgen.families.trial import Trial
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.database import schema
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.records import from_line, to_line
from tests.tuning.earlier import (
    EARLIER,
    PLAIN,
    batched,
    chain,
    config_form,
    config_of,
    earlier_line,
    gemm,
    write_schema_3,
)
from tests.tuning.samples import CONFIG, EARLIER_TOOLS, NO_LAUNCH, record, timing


@pytest.mark.parametrize("name", EARLIER)
def test_a_line_of_the_second_format_is_todays_trial(name: str) -> None:
    problem, epilogue, workload = EARLIER[name]
    config = config_of(workload)
    line = earlier_line(problem, epilogue, config_form(config), "boltgen-record-2")
    found = from_line(line)
    assert found.trial == Trial(workload=workload, config=config)
    assert found.outcome == timing(20.0)
    assert from_line(to_line(found)) == found


@pytest.mark.parametrize("name", ["product", "batch", "convolution"])
def test_a_line_of_the_first_format_has_a_configuration_without_a_type(name: str) -> None:
    problem, epilogue, workload = EARLIER[name]
    config = config_form(CONFIG)
    assert config.pop("type") == "Cutlass2Config"
    found = from_line(earlier_line(problem, epilogue, config, "boltgen-record-1"))
    assert found.trial == Trial(workload=workload, config=CONFIG)
    with pytest.raises(RecordError, match=r"trial\.config: expected an object whose"):
        form = json.loads(to_line(found))
        del form["trial"]["config"]["type"]
        from_line(json.dumps(form))


@pytest.mark.parametrize(
    ("trial", "field"),
    [
        (None, r"trial"),
        ({"workload": {}}, r"trial"),
        ({"problem": 3, "epilogue": PLAIN}, r"trial\.problem"),
        ({"problem": {"type": ["GemmChain"]}, "epilogue": PLAIN}, r"layers\[0\]\.problem"),
        ({"problem": {"type": "GemmChain", "layers": 3}}, r"trial\.problem\.layers"),
        ({"problem": {"type": "GemmChain", "layers": [3]}}, r"trial\.problem\.layers"),
        ({"problem": {"type": "GemmChain", "layers": [{}]}}, r"layers\[0\]\.problem"),
        ({"problem": {"type": "Gemv"}, "epilogue": PLAIN}, r"layers\[0\]\.problem: .*'Gemv'"),
        ({"problem": gemm(8, 8, 8), "epilogue": None}, r"layers\[0\]\.epilogue"),
        ({"problem": gemm(8, 8, 8), "epilogue": PLAIN, "config": 5}, r"trial\.config"),
    ],
)
def test_what_is_no_trial_of_an_earlier_version_is_named(trial: Any, field: str) -> None:
    form = json.loads(to_line(record(20.0)))
    for written in ("boltgen-record-1", "boltgen-record-2"):
        with pytest.raises(RecordError, match=field):
            from_line(json.dumps(form | {"trial": trial, "format": written}))


# --- databases -----------------------------------------------------------------------------------


NOON_US = 1_700_000_000_000_000


def test_a_database_of_schema_3_holds_todays_workloads(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    rows = [
        (problem, epilogue, config_of(workload), timing(10.0 + index), NOON_US)
        for index, (problem, epilogue, workload) in enumerate(EARLIER.values())
    ]
    write_schema_3(path, rows)
    with Database(path) as database:
        assert schema.version(database._connection) == schema.SCHEMA
        assert {each.trial: each.outcome for each in database.records()} == {
            Trial(workload=workload, config=config_of(workload)): timing(10.0 + index)
            for index, (_, _, workload) in enumerate(EARLIER.values())
        }
        (source,) = database.sources()
        assert (source.toolchain, source.records) == (EARLIER_TOOLS, len(EARLIER))
        assert database.void_records(source) == len(EARLIER), "their kernels are not known"
        assert database.add([record(5.0, workload=EARLIER["batch"][2])]) == 1
    with Database(path) as database:
        assert {source.records for source in database.sources()} == {len(EARLIER), 1}


def test_equal_workloads_of_a_database_of_schema_3_are_one(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    one, later = NOON_US, NOON_US + 1_000_000
    write_schema_3(
        path,
        [
            (gemm(64, 64, 64), PLAIN, CONFIG, timing(20.0), one),
            (gemm(384, 64, 64), PLAIN, CONFIG, timing(30.0), one),
            (batched(1, b_batched=False), PLAIN, CONFIG, NO_LAUNCH, later),
            (batched(6, b_batched=False), PLAIN, CONFIG, timing(30.0), one),  # the same once more
            (batched(6), PLAIN, CONFIG, timing(50.0), one),
        ],
    )
    with Database(path) as database:
        found = {(each.trial.workload, each.outcome) for each in database.records()}
        small, large = (Workload.of(Gemm(m=m, n=64, k=64)) for m in (64, 384))
        assert {(small, timing(20.0)), (small, NO_LAUNCH), (large, timing(30.0))} <= found
        tasks = database._connection.execute("SELECT count(*) FROM task").fetchone()[0]
        assert tasks == 3
        assert len(list(database.records())) == 4
        assert [source.records for source in database.sources()] == [4]


@pytest.mark.parametrize(
    "unreadable",
    [
        {"type": "Gemv", "m": 8},
        gemm(0, 8, 8),
        [],
        "no JSON",
        "[" * 100_000,
        '{"type": "Gemm", "m": 1e999}',
        chain("GemmChain", gemm(64, 64, 64), gemm(32, 64, 64)),
    ],
)
def test_what_cannot_be_read_of_schema_3_is_forgotten(tmp_path: Path, unreadable: Any) -> None:
    path = tmp_path / "records.sqlite"
    write_schema_3(
        path,
        [
            (unreadable, PLAIN, CONFIG, timing(10.0), NOON_US),
            (gemm(64, 64, 64), PLAIN, CONFIG, timing(20.0), NOON_US),
            (gemm(64, 64, 64), "[]", CONFIG, timing(30.0), NOON_US),
        ],
    )
    with Database(path) as database:
        (left,) = database.records()
        assert left.trial == Trial(workload=Workload.of(Gemm(m=64, n=64, k=64)), config=CONFIG)
        assert left.outcome == timing(20.0)
        assert [source.records for source in database.sources()] == [1]
