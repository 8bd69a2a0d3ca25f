"""The database: what is written stays, several processes write at once, faults are sentences."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import DatabaseError
from boltgen.families.family import Config
from boltgen.ir.outcome import DeviceIdentity, DeviceKind
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload
from boltgen.tuning.database import connection, schema
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.query import Query
from boltgen.tuning.database.records import spec_key
from tests.tuning.samples import (
    A100,
    CONFIG,
    NO_LAUNCH,
    NOON,
    TOOLS,
    record,
    records,
    timing,
)

FAST = replace(CONFIG, stages=4)
TASK = record().trial.workload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "records.sqlite"


@given(st.lists(records, max_size=5))
@settings(max_examples=20, deadline=None)
def test_what_is_added_comes_back(tmp_path_factory: pytest.TempPathFactory, written) -> None:
    path = tmp_path_factory.mktemp("db") / "records.sqlite"
    with Database(path) as database:
        assert database.add(written) == len(set(written))
        assert database.add(written) == 0, "a record is there once"
    with Database(path) as database:
        assert set(database.records()) == set(written)
        assert sum(source.records for source in database.sources()) == len(set(written))


def times_us(
    database: Database, device: DeviceIdentity = A100, tools: str = TOOLS
) -> dict[Config, float]:
    times = database.times(TASK, device, tools)
    return {config: timed.median_us for config, timed in times.items()}


def test_the_least_newest_median_is_best(path: Path) -> None:
    with Database(path) as database:
        assert database.best(TASK, A100, TOOLS) is None
        database.add([record(20.0), record(10.0, config=FAST)])
        best = database.best(TASK, A100, TOOLS)
        assert best is not None
        assert (best.config, best.timing) == (FAST, timing(10.0))
        # Measured again: the newest counts, also where it is a failure.
        database.add([record(30.0, config=FAST, after_s=1)])
        assert times_us(database) == {CONFIG: 20.0, FAST: 30.0}
        database.add([record(NO_LAUNCH, after_s=2)])
        assert times_us(database) == {FAST: 30.0}
        assert database.outcomes(TASK, A100, TOOLS) == {CONFIG: NO_LAUNCH, FAST: timing(30.0)}
        best = database.best(TASK, A100, TOOLS)
        assert best is not None
        assert best.config == FAST


def test_the_history_of_a_workload_is_in_the_order_of_time(path: Path) -> None:
    later = record(NO_LAUNCH, after_s=1.0)
    first = record(3.0, config=FAST)
    other = record(device=replace(A100, arch="sm_86"))
    with Database(path) as database:
        database.add([later, first, other])
        assert database.history(TASK, "sm_80") == (first, later)
        assert database.history(TASK, "sm_86") == (other,)
        assert database.history(TASK, "sm_75") == ()


def test_devices_drivers_and_toolchains_are_kept_apart(path: Path) -> None:
    others = [
        (replace(A100, driver="999.1"), TOOLS),
        (replace(A100, kind=DeviceKind.VGPU), TOOLS),
        (replace(A100, clock_mhz=1000), TOOLS),
        (A100, TOOLS.replace("CUTLASS 4.2.0", "CUTLASS 4.3.0")),
        (A100, TOOLS.replace("13.0.88", "12.9.86")),
    ]
    with Database(path) as database:
        database.add(
            record(1.0 + i, device=device, toolchain=tools)
            for i, (device, tools) in enumerate(others)
        )
        assert database.best(TASK, A100, TOOLS) is None
        for i, (device, tools) in enumerate(others):
            assert times_us(database, device, tools) == {CONFIG: 1.0 + i}
        assert len(database.sources()) == len(others)
        assert len(database.sources(toolchain=TOOLS)) == 3


def test_a_query_asks_for_records(path: Path) -> None:
    conv = Workload.of(Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3))
    t4 = replace(A100, name="Tesla T4", arch="sm_75", kind=DeviceKind.VGPU)
    all_of_them = [
        record(20.0),
        record(NO_LAUNCH, config=FAST, after_s=60),
        record(9.0, workload=conv),
        record(8.0, device=t4),
    ]
    with Database(path) as database:
        database.add(all_of_them)

        def found(query: Query) -> set[int]:
            return {all_of_them.index(each) for each in database.records(query)}

        assert found(Query()) == {0, 1, 2, 3}
        assert found(Query(arch="sm_75")) == {3}
        assert found(Query(kind=DeviceKind.CUDA)) == {0, 1, 2}
        assert found(Query(device="tesla")) == {3}
        assert found(Query(operation="Conv2d")) == {2}
        assert found(Query(operation="Gemm")) == {0, 1, 3}
        assert found(Query(operation="Conv")) == set()
        assert found(Query(failures=True)) == {1}
        assert found(Query(failures=False)) == {0, 2, 3}
        assert found(Query(before=NOON + timedelta(seconds=60))) == {0, 2, 3}
        assert found(Query(toolchain="another")) == set()
        assert found(Query(toolchain="CUTLASS 4.2")) == {0, 1, 2, 3}
        best = list(database.records(Query(kind=DeviceKind.CUDA), best=True))
        assert {all_of_them.index(each) for each in best} == {0, 2}
        database.add([record(15.0, config=FAST, after_s=61), record(99.0, after_s=61)])
        best = list(database.records(Query(operation="Gemm", arch="sm_80"), best=True))
        assert best == [record(15.0, config=FAST, after_s=61)]
        assert database.prune(Query(operation="Gemm", arch="sm_80", failures=False)) == 3
        assert database.add([record(20.0)]) == 1
        assert database.prune(Query(failures=True)) == 1
        assert found(Query()) == {0, 2, 3}
        assert {source.device.name: source.records for source in database.sources()} == {
            A100.name: 2,
            "Tesla T4": 1,
        }


def test_records_of_a_kernel_that_has_changed_do_not_count(path: Path) -> None:
    old, other = record(20.0), record(30.0, config=FAST)
    new = record(25.0, after_s=1, version="new")
    spec = old.trial.spec("sm_80")
    with Database(path) as database:
        database.add([old, other])
        assert database.times(TASK, A100, TOOLS)[CONFIG] == (20.0, old.kernel)
        stamp = database.stamp("sm_80", TOOLS)
        database.learn({spec: old.kernel}, TOOLS)
        assert times_us(database) == {CONFIG: 20.0, FAST: 30.0}, "it is the one that was measured"
        database.learn({spec: new.kernel}, TOOLS.replace("4.2.0", "4.3.0"))
        assert times_us(database) == {CONFIG: 20.0, FAST: 30.0}, "another toolchain's"
        before = database.stamp("sm_80", TOOLS)
        database.learn({spec: new.kernel}, TOOLS)
        assert len({stamp, before, database.stamp("sm_80", TOOLS)}) == 3
        assert times_us(database) == {FAST: 30.0}
        assert database.outcomes(TASK, A100, TOOLS).keys() == {FAST}
        assert database.best(TASK, A100, TOOLS).config == FAST
        (source,) = database.sources()
        assert (source.records, database.void_records(source)) == (2, 1)
        assert list(database.records(Query(void=True))) == [old]
        assert list(database.records(Query(void=False))) == [other]
        assert list(database.records(best=True)) == [other]
        database.add([new])
        assert times_us(database) == {CONFIG: 25.0, FAST: 30.0}
        # As it was before: what was measured then counts again.
        found = database.times(TASK, A100, TOOLS, {spec_key(spec, TOOLS): old.kernel})
        assert found[CONFIG] == (20.0, old.kernel)
        database.learn({spec: old.kernel}, TOOLS)
        assert times_us(database) == {CONFIG: 20.0, FAST: 30.0}
        assert database.contents() == {
            spec_key(spec, TOOLS): old.kernel,
            spec_key(spec, TOOLS.replace("4.2.0", "4.3.0")): new.kernel,
        }


def test_the_stamp_changes_with_the_records_of_an_arch_and_toolchain(path: Path) -> None:
    with Database(path) as database:
        empty = database.stamp("sm_80", TOOLS)
        database.add([record(20.0, device=replace(A100, arch="sm_86"))])
        assert database.stamp("sm_80", TOOLS) == empty
        database.add([record(20.0)])
        one = database.stamp("sm_80", TOOLS)
        assert one != empty
        database.add([record(20.0)])
        assert database.stamp("sm_80", TOOLS) == one
        assert database.stamp("sm_80", "another") == empty
        database.prune(Query(arch="sm_80"))
        assert database.stamp("sm_80", TOOLS) == empty


def write_many(path: Path, writer: int, count: int, batch: int) -> None:
    with Database(path) as database:
        for start in range(0, count, batch):
            database.add(
                record(100.0 + i, config=replace(CONFIG, split_k=writer + 1), after_s=i)
                for i in range(start, start + batch)
            )


def test_eight_processes_write_at_once(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, w, 100, 5)) for w in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    with Database(path) as database:
        found = list(database.records())
        assert len(found) == len(set(found)) == 800
        assert database.sources()[0].records == 800
        assert database.set_aside is None


def test_a_killed_writer_leaves_every_record_that_was_added(path: Path) -> None:
    reading, writing = os.pipe()

    def write_for_ever() -> None:
        with Database(path) as database:
            for i in range(10**9):
                database.add([record(100.0 + i, after_s=i)])
                os.write(writing, b".")

    writer = multiprocessing.get_context("fork").Process(target=write_for_ever)
    writer.start()
    told = 0
    while told < 20:
        told += len(os.read(reading, 4096))
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    os.close(writing)
    while more := os.read(reading, 4096):
        told += len(more)
    os.close(reading)
    with Database(path) as database:
        assert database.set_aside is None
        # The last one may have been written without having been told.
        assert len(list(database.records())) in (told, told + 1)


def test_a_locked_database_says_so(path: Path) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with (
        Database(path, timeout_s=0.05) as database,
        pytest.raises(DatabaseError, match=r"records.sqlite: another process holds it locked"),
    ):
        database.add([record(30.0, after_s=1)])
    other.execute("COMMIT")
    other.close()
    with Database(path) as database:
        assert database.add([record(30.0, after_s=1)]) == 1


def test_a_read_only_database_is_read(path: Path) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
    with Database(path, read_only=True) as database:
        assert times_us(database) == {CONFIG: 20.0}
        with pytest.raises(DatabaseError, match=r"read-only; make it writable.*BOLTGEN_DATA_DIR"):
            database.add([record(30.0, after_s=1)])
    with pytest.raises(DatabaseError, match="no such file"):
        Database(path.with_name("other.sqlite"), read_only=True)


def test_a_read_only_folder_is_read_without_companions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
    asked = []

    def refusing(opened: sqlite3.Connection) -> int:
        # What SQLite says where it can make no -shm file; root could make one anywhere.
        asked.append(opened)
        if len(asked) == 1:
            raise sqlite3.OperationalError("unable to open database file")
        return schema.version(opened)

    monkeypatch.setattr(connection, "version", refusing)
    with Database(path, read_only=True) as database:
        assert list(database.records()) == [record(20.0)]
    assert len(asked) > 1
    assert sorted(child.name for child in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_an_opening_that_another_process_holds_up_says_so(path: Path) -> None:
    path.parent.mkdir()
    with (
        FileLock(f"{path}.lock"),
        pytest.raises(DatabaseError, match=r"another process holds it locked \(being opened\)"),
    ):
        Database(path, timeout_s=0.05)


def test_a_row_of_a_later_version_is_a_sentence(path: Path) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
        database._connection.execute(
            "UPDATE config SET json = replace(json, 'stages', 'pipeline_stages')"
        )
    with (
        Database(path) as database,
        pytest.raises(DatabaseError, match=r"does not know \(pipeline_stages: .*a newer one"),
    ):
        times_us(database)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match=r"cannot be used \(.*\); set BOLTGEN_DATA_DIR"):
        Database(tmp_path / "file" / "records.sqlite")


def test_a_full_disk_keeps_what_was_written_before(path: Path) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
        # SQLite then fails as on a full disk, with the same error.
        pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
        database._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DatabaseError, match=r"no space left.*what was written before is kept"):
            database.add(record(20.0 + i, after_s=i) for i in range(1, 1000))
        assert list(database.records()) == [record(20.0)]
        database._connection.execute("PRAGMA max_page_count = 1000000")
        assert database.add(record(20.0 + i, after_s=i) for i in range(1, 1000)) == 999
    with Database(path) as database:
        assert len(list(database.records())) == 1000


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_a_damaged_database_is_set_aside_and_not_deleted(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Database(path) as database:
        database.add(record(20.0 + i, after_s=i) for i in range(500))
    whole = path.read_bytes()
    contents = {
        "truncated": whole[: len(whole) // 2],
        "overwritten": whole[:4096] + b"\xff" * 8192 + whole[12288:],
    }[damage]
    path.write_bytes(contents)
    with Database(path) as database:
        assert list(database.records()) == []
        assert database.add([record(20.0)]) == 1
        aside = database.set_aside
    assert aside is not None
    assert aside.parent == path.parent
    assert aside.read_bytes() == contents
    assert str(aside) in caplog.text
    with Database(path) as database:
        assert database.set_aside is None
        assert len(list(database.records())) == 1


def _sqlite(path: Path, *statements: str) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["text", "model", "other", "empty", "wal", "named", "cut"])
def test_a_file_of_another_program_is_refused_and_left(
    tmp_path: Path, kind: str, read_only: bool
) -> None:
    path = tmp_path / "notes.txt"
    match kind:
        case "text":
            path.write_bytes(b"my notes\n" * 100)
        case "model":
            path.write_bytes(bytes(range(256)) * 40)
        case "other":
            _sqlite(path, "CREATE TABLE t (x)")
        case "empty":
            _sqlite(path, "CREATE TABLE t (x)", "DROP TABLE t")
        case "wal":
            _sqlite(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (x)")
        case "named":
            _sqlite(path, "PRAGMA application_id = 12345", "CREATE TABLE t (x)")
        case _:
            path.write_bytes(_sqlite(tmp_path / "whole", "CREATE TABLE t (x)")[:50])
            (tmp_path / "whole").unlink()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match=r"notes\.txt is .*; it is left as it is"):
        Database(path, read_only=read_only)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_with_the_name_of_our_lock_is_not_emptied(tmp_path: Path) -> None:
    lock = tmp_path / "poetry.lock"
    lock.write_text("mine")
    with pytest.raises(DatabaseError, match=r"poetry\.lock is not boltgen's lock"):
        Database(tmp_path / "poetry")
    assert lock.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [lock]


def test_a_database_whose_first_writer_was_killed_is_ours(path: Path) -> None:
    """It has no tables yet, or its header is in the log still."""
    path.parent.mkdir()
    path.touch()
    Database(path).close()
    with Database(path) as database:
        database.add([record(20.0)])
    copy = path.with_name("copy.sqlite")
    with contextlib.closing(sqlite3.connect(copy)) as writing:
        writing.execute("PRAGMA journal_mode = WAL")
        writing.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        writing.commit()
        Database(copy, timeout_s=1.0).close()


def test_damage_met_while_reading_is_a_sentence(path: Path) -> None:
    with Database(path) as database:
        database.add(record(20.0 + i, after_s=i) for i in range(500))
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(DatabaseError, match=r"it is damaged .*boltgen db stats.* sets it aside"):
        Database(path, read_only=True)


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    with Database(path) as database:
        database.add([record(20.0)])
        database._connection.execute(f"PRAGMA user_version = {schema.SCHEMA + 5}")
    for read_only in (False, True):
        with pytest.raises(DatabaseError, match=r"schema \d+, written by a newer boltgen; .*up to"):
            Database(path, read_only=read_only)
    sqlite3.connect(path).execute(f"PRAGMA user_version = {schema.SCHEMA}")
    with Database(path) as database:
        assert list(database.records()) == [record(20.0)]


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="another program's database"):
        Database(path)
    assert path.read_bytes() == before


def fill_version_1(path: Path) -> None:
    """A file as the first version wrote it: the same rows, without what came later."""
    with Database(path) as database:
        database.add([record(20.0), record(30.0, config=FAST), record(NO_LAUNCH, after_s=9)])
    whole = sqlite3.connect(path)
    old = sqlite3.connect(path.with_name("old.sqlite"), isolation_level=None)
    schema.migrate(old, target=1)
    written = {
        "json": """replace(json, '"type":"Cutlass2Config",', '')""",
        # Without the fields of a product that came with batches.
        "problem": "json_remove(json_extract(workload, '$.layers[0].problem'), "
        "'$.batch', '$.a_batched', '$.b_batched')",
        "epilogue": "json_extract(workload, '$.layers[0].epilogue')",
    }
    for table in ("task", "config", "kernel", "bench", "record"):
        columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
        columns = [written.get(column, column) for column in columns]
        rows = whole.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        marks = ", ".join("?" for _ in columns)
        old.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    whole.close()
    old.close()
    path.unlink()
    path.with_name("old.sqlite").rename(path)


def test_an_older_schema_is_migrated(path: Path) -> None:
    fill_version_1(path)
    with pytest.raises(DatabaseError, match=r"schema 1, and is too old to be read without"):
        Database(path, read_only=True)
    with Database(path) as database:
        assert schema.version(database._connection) == schema.SCHEMA
        assert len(list(database.records())) == 3
        assert times_us(database) == {}, "of which kernels they are is not known"
        (source,) = database.sources()
        assert (source.records, database.void_records(source)) == (3, 3)
        before = database.stamp("sm_80", TOOLS)
        database.add([record(20.0, after_s=10)])
        assert database.stamp("sm_80", TOOLS) != before
        assert times_us(database) == {CONFIG: 20.0}
        assert database.prune(Query(void=True)) == 3
        assert list(database.records()) == [record(20.0, after_s=10)]


def test_a_migration_is_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_version_1(path)
    for place, steps in enumerate(schema._VERSIONS[1:], 1):
        broken = list(schema._VERSIONS)
        broken[place] = (*steps, "UPDATE nowhere SET x = 1")
        with monkeypatch.context() as patch:
            patch.setattr(schema, "_VERSIONS", tuple(broken))
            with pytest.raises(DatabaseError, match="no such table: nowhere"):
                Database(path)
    with Database(path) as database:
        assert [source.records for source in database.sources()] == [3]


def test_two_processes_migrate_at_once(path: Path) -> None:
    fill_version_1(path)
    context = multiprocessing.get_context("fork")
    openers = [context.Process(target=lambda: Database(path).close()) for _ in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    assert [opener.exitcode for opener in openers] == [0] * 4
    with Database(path) as database:
        assert [source.records for source in database.sources()] == [3]


def test_the_file_is_its_owners_alone(path: Path) -> None:
    Database(path).close()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert time.time() - path.stat().st_mtime < 60


def filled(path: Path) -> sqlite3.Connection:
    with Database(path) as database:
        database.add([record(20.0), record(10.0, config=FAST)])
    return sqlite3.connect(path, isolation_level=None)


_ENDLESS = """
DROP TABLE kernel;
CREATE VIEW kernel(id, digest) AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i, 'x' FROM n;
"""
_TRIGGER = "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM bench; END;"
_COLUMN = "ALTER TABLE record ADD COLUMN more TEXT;"


@pytest.mark.parametrize(
    ("script", "name"), [(_ENDLESS, "kernel"), (_TRIGGER, "t"), (_COLUMN, "record")]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_tables_that_are_not_boltgens_are_not_read(
    path: Path, script: str, name: str, read_only: bool
) -> None:
    connected = filled(path)
    connected.executescript(script)
    connected.close()
    with pytest.raises(DatabaseError, match=f"its tables are not what boltgen makes: '{name}'"):
        Database(path, read_only=read_only)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE record SET measured_at_us = 4e18",
        "UPDATE record SET measured_at_us = 'noon'",
        "UPDATE record SET outcome = x'ff'",
        "UPDATE bench SET toolchain = x'ff'",
        "UPDATE kernel SET digest = x'ff' WHERE id = 1",
        "UPDATE task SET workload = '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[['",
        'UPDATE task SET workload = \'{"layers":[{"problem":{"type":"Gemm"}}]}\'',
        "UPDATE config SET json = '5' WHERE id = 1",
        "UPDATE record SET median_us = 'fast', outcome = 'x'",
    ],
)
def test_a_row_of_other_types_is_an_error(path: Path, change: str) -> None:
    connected = filled(path)
    connected.execute(change)
    connected.close()
    with Database(path) as database, pytest.raises(DatabaseError, match="a row holds what this"):
        list(database.records())


def test_a_damaged_database_of_somebody_elses_is_left_as_it_is(path: Path) -> None:
    filled(path).close()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xff" * 4096 + content[12288:])
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="it is damaged"):
        Database(path, read_only=True)
    assert path.read_bytes() == before


def test_what_is_no_regular_file_is_not_touched(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o644)
    with pytest.raises(DatabaseError, match=r"pipe cannot be used \(it is a pipe or a device"):
        Database(tmp_path / "pipe")
    assert (tmp_path / "pipe").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_query_that_is_no_utf8_is_named(path: Path) -> None:
    filled(path).close()
    with Database(path) as database, pytest.raises(DatabaseError, match=r"no UTF-8: '\\udcff'"):
        list(database.records(Query(device="\udcff")))
