"""The commands of the database: what they print, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boltgen import cli
from boltgen.cli import db as db_commands
from boltgen.cli.terminal import console
from boltgen.tuning.database import schema
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.exchange import read_records, write_records
from tests.tuning.samples import A100, CONFIG, EARLIER_TOOLS, NO_LAUNCH, TOOLS, record

OTHER = TOOLS.replace("CUTLASS 4.2.0", "CUTLASS 4.3.0")
RECORDS = [
    record(20.0),
    record(15.0, config=replace(CONFIG, stages=4)),
    record(NO_LAUNCH, config=replace(CONFIG, stages=5)),
    record(12.0, toolchain=OTHER),
]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(console.out, "width", 400)
    monkeypatch.setattr(console.err, "width", 400)
    with Database(tmp_path / "data" / "records.sqlite") as database:
        database.add(RECORDS)
    return tmp_path


def db(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(cli.app, ["db", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_commands, "own_toolchain", lambda settings: TOOLS)
    text = db("stats")
    assert A100.name in text
    assert "measured" in text
    assert "CUTLASS 4.3.0" in text
    assert text.count("no: another toolchain") == 1
    assert re.search(r"CUTLASS 4\.2\.0 .* yes", text)
    assert re.search(r"records\.sqlite, 0\.\d MB", text)


def test_query() -> None:
    text = db("query")
    assert text.count("gemm 512x512x512") == 4
    assert "128x128x32_64x64_s4" in text
    assert "15.00" in text
    assert "launch" in text
    assert "2026-01-31 12:00" in text
    best = db("query", "--best")
    assert ("15.00" in best, "12.00" in best, "20.00" in best) == (True, True, False)
    assert db("query", "--limit", 1).count("gemm") == 1
    assert db("query", "--failures").count("gemm") == 1
    assert db("query", "--operation", "Conv2d").count("gemm") == 0
    assert db("query", "--before", "2026-01-31").count("gemm") == 0
    assert db("query", "--kind", "cuda", "--arch", "sm_80", "--device", "a100").count("gemm") == 4


def test_records_move_through_files(folder: Path) -> None:
    file = folder / "a100.jsonl.gz"
    assert f"4 records written to {file}" in db("export", file)
    assert set(read_records(file)) == set(RECORDS)
    assert f"0 new records from {file}" in db("import", file)
    elsewhere = folder / "elsewhere.sqlite"
    assert f"4 new records from {file}" in db("import", file, "--database", elsewhere)
    assert "1 record written" in db("export", folder / "f.jsonl", "--failures")
    assert list(read_records(folder / "f.jsonl")) == [RECORDS[2]]


def test_records_of_another_toolchain_are_imported_and_kept_apart(folder: Path) -> None:
    file = folder / "other.jsonl"
    write_records(file, [record(1.0, toolchain=OTHER, after_s=5)])
    assert "1 new record" in db("import", file)
    with Database(folder / "data" / "records.sqlite") as database:
        best = database.best(record().trial.workload, A100, TOOLS)
        assert best is not None
        assert best.timing.median_us == 15.0


def test_a_file_with_a_bad_line_adds_nothing(folder: Path) -> None:
    file = folder / "bad.jsonl"
    write_records(file, [record(1.0, after_s=5)])
    file.write_text(file.read_text() + file.read_text().replace("median_us", "median_ms"))
    text = db("import", file, status=1)
    assert "bad.jsonl, line 2: outcome.median_ms" in text
    assert "convert it to 'median_us'" in text
    assert db("query").count("gemm") == 4


def test_databases_are_merged(folder: Path) -> None:
    other = folder / "other.sqlite"
    with Database(other) as database:
        database.add([RECORDS[0], record(9.0, after_s=5)])
    before = other.read_bytes()
    assert f"1 new record from {other}" in db("merge", other)
    assert other.read_bytes() == before
    assert db("query").count("gemm") == 5
    assert "there is no such file" in db("merge", folder / "none.sqlite", status=1)


def test_records_are_forgotten_by_description() -> None:
    assert "1 record forgotten" in db("prune", "--failures")
    assert "1 record forgotten" in db("prune", "--toolchain", OTHER)
    assert "0 records forgotten" in db("prune", "--arch", "sm_75")
    assert db("query").count("gemm") == 2
    assert "by at least one option" in db("prune", status=2)
    assert db("query").count("gemm") == 2


def test_records_that_do_not_count_are_told_and_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boltgen.cli.db.own_toolchain", lambda settings: TOOLS)
    earlier = record(9.0, toolchain=EARLIER_TOOLS)
    with Database(folder / "data" / "records.sqlite") as database:
        database.add([earlier])
        database.learn({RECORDS[0].trial.spec("sm_80"): "another kernel"}, TOOLS)
    text = db("stats")
    assert "yes, but 1 void: their kernels have changed" in text
    assert text.count("no: another toolchain") == 1
    assert text.count("recorded before kernels were told by their content") == 1
    assert db("query", "--void").count("gemm") == 2
    assert db("query", "--valid").count("gemm") == 3
    assert "2 records forgotten" in db("prune", "--void")
    assert "void" not in db("stats")
    assert db("query").count("gemm") == 3


def test_faults_are_sentences(folder: Path) -> None:
    path = folder / "data" / "records.sqlite"
    with Database(path) as database:
        database._connection.execute(f"PRAGMA user_version = {schema.SCHEMA + 1}")
    assert "written by a newer boltgen" in db("stats", status=1)
    path.unlink()
    with Database(path) as database:
        database.add(RECORDS)
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192)
    text = db("stats")
    assert "was damaged and is now" in text
    assert "records.damaged-" in text
    assert len(list(path.parent.glob("records.damaged-*.sqlite"))) == 1


def test_a_file_of_another_program_is_left_as_it_is(folder: Path) -> None:
    notes = folder / "notes.txt"
    notes.write_text("mine")
    for command in ("stats", "query"):
        text = db(command, "--database", str(notes), status=1)
        assert f"{notes} is no database; it is left as it is" in text
    notes = notes.rename(folder / "notes.jsonl")
    with Database(folder / "data" / "records.sqlite") as database:
        database.add(RECORDS)
    text = db("export", str(notes), status=1)
    assert f"{notes} cannot be written: it exists, and boltgen did not write it" in text
    assert notes.read_text() == "mine"


def test_conditions_that_nothing_can_fulfil_are_refused(folder: Path) -> None:
    assert "unknown arch 'xx'" in db("query", "--arch", "xx", status=1)
    assert "did you mean 'H100' (sm_90a)" in db("prune", "--arch", "H10", status=1)
    text = db("query", "--operation", "Gem", status=1)
    assert "--operation 'Gem': give one of Conv2d, Conv3d, Depthwise, Gemm" in text
    assert db("query", "--arch", "A100") == db("query", "--arch", "sm_80")
    assert db("query", "--operation", "gemm").count("gemm") >= 3
    assert "no record fits these options" in db("query", "--arch", "t4")


def test_help_has_examples() -> None:
    for command in ("stats", "query", "export", "import", "merge", "prune"):
        assert f"boltgen db {command}" in db(command, "--help")
