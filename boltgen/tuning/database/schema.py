"""The database's tables, and the steps from each earlier version to the next.

SQLite's `user_version` has the version. A released step is never edited, because files of its
version exist.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

from boltgen.errors import RecordError
from boltgen.families.json_form import decode
from boltgen.intake.json_text import JsonError, parse_json
from boltgen.problems.workload import Workload
from boltgen.tuning.database.record_migration import earlier_workload
from boltgen.tuning.database.records import dumps, task_key

# "bolt", in the file's header, where programs that identify files look.
APPLICATION = 0x626F6C74

# Values that many records share are stored once, as readable JSON with a digest as the key. A
# record's primary key keeps all measurements of one problem on one bench together on the disk.
_CREATE = """
CREATE TABLE task (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    problem TEXT NOT NULL,
    epilogue TEXT NOT NULL
);
CREATE TABLE config (
    id INTEGER PRIMARY KEY,
    json TEXT NOT NULL UNIQUE
);
CREATE TABLE kernel (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE
);
CREATE TABLE bench (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    arch TEXT NOT NULL,
    name TEXT NOT NULL,
    device TEXT NOT NULL,
    toolchain TEXT NOT NULL
);
CREATE TABLE record (
    task INTEGER NOT NULL REFERENCES task,
    bench INTEGER NOT NULL REFERENCES bench,
    config INTEGER NOT NULL REFERENCES config,
    measured_at_us INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    median_us REAL,
    kernel INTEGER NOT NULL REFERENCES kernel,
    PRIMARY KEY (task, bench, config, measured_at_us, outcome)
) WITHOUT ROWID;
"""

# Selection needs the number of records per bench, and whether records have changed. Both are
# stored, so that nothing counts a million rows.
_COUNT = """
ALTER TABLE bench ADD COLUMN records INTEGER NOT NULL DEFAULT 0;
ALTER TABLE bench ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
UPDATE bench SET
    records = (SELECT count(*) FROM record WHERE record.bench = bench.id),
    stamp = hex(randomblob(8));
"""

# A configuration may belong to a back-to-back kernel, so its JSON names its type from here on.
_NAME_CONFIGS = """
UPDATE config SET json = '{"type":"Cutlass2Config",' || substr(json, 2);
"""

# A task is a workload: a problem and its epilogue become one value, and equal ones are merged.
_ADD_WORKLOADS = """
ALTER TABLE task ADD COLUMN workload TEXT NOT NULL DEFAULT '';
"""
_DROP_PROBLEMS = """
ALTER TABLE task DROP COLUMN problem;
ALTER TABLE task DROP COLUMN epilogue;
"""


def _make_workloads(connection: sqlite3.Connection) -> None:
    """Write each task as today's workload; delete unreadable ones with their records.

    Later steps find the form that the running version writes.
    """
    numbers: dict[str, int] = {}
    rows = connection.execute("SELECT id, problem, epilogue FROM task ORDER BY id").fetchall()
    for number, problem, epilogue in rows:
        try:
            forms = (parse_json(decode(str, text)) for text in (problem, epilogue))
            workload = decode(Workload, earlier_workload(*forms))
        except (RecordError, JsonError):
            connection.execute("DELETE FROM record WHERE task = ?", (number,))
            connection.execute("DELETE FROM task WHERE id = ?", (number,))
            continue
        key = task_key(workload)
        if key in numbers:
            connection.execute(
                "UPDATE OR IGNORE record SET task = ? WHERE task = ?", (numbers[key], number)
            )
            connection.execute("DELETE FROM record WHERE task = ?", (number,))
            connection.execute("DELETE FROM task WHERE id = ?", (number,))
            continue
        numbers[key] = number
        connection.execute(
            "UPDATE task SET digest = ?, workload = ? WHERE id = ?",
            (key, dumps(Workload, workload), number),
        )
    connection.execute(
        "UPDATE bench SET stamp = hex(randomblob(8)), "
        "records = (SELECT count(*) FROM record WHERE record.bench = bench.id)"
    )


# A record counts while its kernel is the newest known content of its spec. Records from before this
# step have no spec, because their kernels were identified in another way.
_TELL_CONTENTS = """
CREATE TABLE spec (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    content INTEGER REFERENCES kernel
);
ALTER TABLE record ADD COLUMN spec INTEGER REFERENCES spec;
UPDATE bench SET stamp = hex(randomblob(8));
"""

# TVM's own kernels: their identities, schedules and times. The schedule and the toolchain, which
# names TVM, determine the compiled kernel.
_ADD_REST = """
CREATE TABLE rest (
    task TEXT NOT NULL,
    bench INTEGER NOT NULL REFERENCES bench,
    config TEXT NOT NULL,
    measured_at_us INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    median_us REAL,
    PRIMARY KEY (task, bench, config, measured_at_us)
) WITHOUT ROWID;
"""


_Step: TypeAlias = str | Callable[[sqlite3.Connection], None]
# The steps of each version.
_VERSIONS: tuple[tuple[_Step, ...], ...] = (
    (_CREATE,),
    (_COUNT,),
    (_NAME_CONFIGS,),
    (_ADD_WORKLOADS, _make_workloads, _DROP_PROBLEMS),
    (_TELL_CONTENTS,),
    (_ADD_REST,),
)
SCHEMA = len(_VERSIONS)


def version(connection: sqlite3.Connection) -> int:
    """Return the version of the file's tables; 0 if it has none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def belongs_to_boltgen(connection: sqlite3.Connection) -> bool:
    """Return whether the file is boltgen's or empty."""
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    return owner == APPLICATION or not tables


def differing(connection: sqlite3.Connection, found: int) -> str | None:
    """Name a table, view, trigger or index that is missing or differs from a new file of version
    `found`; return None if all match.

    A foreign view in place of a table could be an endless query.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        if found:
            migrate(made, found)
        expected, present = _objects(made), _objects(connection)
    different = {name for name, _ in expected.items() ^ present.items()}
    return ascii(min(different)) if different else None


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the definitions in the file by name, without SQLite's own."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {
        str(name): f"{kind} {' '.join(str(sql).split())}"
        for kind, name, sql in rows
        if sql is not None and not str(name).startswith("sqlite_stat")
    }


def migrate(connection: sqlite3.Connection, target: int = SCHEMA) -> None:
    """Migrate the tables to version `target` by all steps or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock, because another process may have migrated meanwhile.
        for step in itertools.chain(*_VERSIONS[version(connection) : target]):
            _take(step, connection)
        connection.execute(f"PRAGMA user_version = {target}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    except BaseException:
        if connection.in_transaction:  # on a full disk SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _take(step: _Step, connection: sqlite3.Connection) -> None:
    if not isinstance(step, str):
        step(connection)
        return
    for statement in filter(str.strip, step.split(";")):
        connection.execute(statement)
