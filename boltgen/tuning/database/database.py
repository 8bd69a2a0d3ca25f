"""The database of all measurements: an SQLite file that many processes read and write at once.

A record is never changed. If a trial was measured several times on one bench (a device with a
toolchain), the newest outcome counts. A record counts only while its kernel is the newest known
content of its spec; if a kernel now compiles to another content, its earlier outcomes do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from boltgen.arch import arch_named
from boltgen.errors import DatabaseError, InvalidProblemError, RecordError
from boltgen.families.family import Config
from boltgen.families.json_form import decode
from boltgen.families.registry import FAMILIES
from boltgen.families.trial import Trial
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, Outcome, Timing
from boltgen.problems.workload import Workload
from boltgen.tuning.database.connection import database_errors, open_file
from boltgen.tuning.database.query import EPOCH, MICROSECOND, VOID, Query
from boltgen.tuning.database.records import Record, dumps, loads, task_key, tells_no_content
from boltgen.tuning.database.small_tables import SmallTables, bench_key
from boltgen.tuning.rest.records import RestRecords

FILE_NAME = "records.sqlite"
_JOINED = (
    "JOIN task ON task.id = record.task JOIN bench ON bench.id = record.bench "
    "JOIN kernel ON kernel.id = record.kernel LEFT JOIN spec ON spec.id = record.spec"
)
# With max() or min(), SQLite takes the other columns from the row of the extreme.
_NEWEST = (
    "(SELECT task, bench, config, outcome, median_us, kernel, spec, max(measured_at_us) AS "
    f"measured_at_us FROM record LEFT JOIN spec ON spec.id = record.spec WHERE NOT {VOID} "
    "GROUP BY task, bench, config)"
)
_BEST = (
    "(SELECT task, bench, config, outcome, min(median_us) AS median_us, kernel, spec, "
    "measured_at_us "
    f"FROM {_NEWEST} WHERE median_us NOT NULL GROUP BY task, bench)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A device and a toolchain, and their number of records."""

    device: DeviceIdentity
    toolchain: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The configuration with the least median time, and this time."""

    config: Config
    timing: Timing


class TimedKernel(NamedTuple):
    """A median time, and the content of the measured kernel."""

    median_us: float
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The parts of a record for a configuration, which is given by its number."""

    config: int
    median_us: float | None
    outcome: str
    kernel: str


class Database:
    """The database in the file `path`, which is created with its folder unless `read_only`.

    A damaged file is renamed to `set_aside`, and a new one is created; with `examine` the whole
    file is checked for damage. An object belongs to one thread. `timeout_s` is the longest wait for
    a lock.

    Raises:
        DatabaseError: the file cannot be opened. Every method raises it if the file is locked for
            too long or becomes damaged, or if the disk is full.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        examine: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        self.path = path
        opened = open_file(path, read_only=read_only, examine=examine, timeout_s=timeout_s)
        self.set_aside = opened.set_aside
        self._connection = opened.connection
        self._tables = SmallTables(self._connection)
        # The records of TVM's own kernels.
        self.rest = RestRecords(path, self._connection, self._tables, self._transaction)
        self._configs: dict[int, Config] = {}

    def close(self) -> None:
        """Close the file. A second call is harmless."""
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, records: Iterable[Record]) -> int:
        """Write all records or none; return the number of new ones.

        The call does not change which kernels are the newest; `learn` does. After it returns, the
        records survive any end of the process.
        """
        written: dict[int, int] = {}
        with self._transaction():
            for record in records:
                bench = self._tables.bench(record.device, record.toolchain)
                new = self._insert(record, bench)
                written[bench] = written.get(bench, 0) + new
            self._count(written)
        return sum(written.values())

    def learn(self, kernels: Mapping[KernelSpec, str], toolchain: str) -> None:
        """Store the contents of kernels that were compiled now.

        Records of their specs with other contents no longer count.
        """
        changed = False
        with self._transaction():
            for spec, content in kernels.items():
                number = self._tables.spec(spec, toolchain)
                kernel = self._tables.kernel(content)
                changed |= bool(
                    self._connection.execute(
                        "UPDATE spec SET content = ? WHERE id = ? AND content IS NOT ?",
                        (kernel, number, kernel),
                    ).rowcount
                )
            if changed:
                self._connection.execute(
                    "UPDATE bench SET stamp = hex(randomblob(8)) WHERE toolchain = ?", (toolchain,)
                )

    def contents(self) -> dict[str, str]:
        """Return the newest known content of each kernel, by `records.spec_key`."""
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT spec.digest, kernel.digest FROM spec JOIN kernel ON kernel.id = content"
            ).fetchall()
        return {decode(str, key): decode(str, content) for key, content in rows}

    def outcomes(
        self,
        workload: Workload,
        device: DeviceIdentity,
        toolchain: str,
        contents: Mapping[str, str] | None = None,
    ) -> dict[Config, Outcome]:
        """Return the newest outcome of every configuration that was tried.

        `contents` override the contents that the database knows.
        """
        return {
            self._config(row.config): self._read(Outcome, row.outcome)
            for row in self._newest(workload, device, toolchain, contents)
        }

    def times(
        self,
        workload: Workload,
        device: DeviceIdentity,
        toolchain: str,
        contents: Mapping[str, str] | None = None,
    ) -> dict[Config, TimedKernel]:
        """Return the time and kernel of every configuration whose newest outcome is a time."""
        return {
            self._config(row.config): TimedKernel(row.median_us, row.kernel)
            for row in self._newest(workload, device, toolchain, contents)
            if row.median_us is not None
        }

    def best(self, workload: Workload, device: DeviceIdentity, toolchain: str) -> Best | None:
        """Return the configuration with the least newest median, or None without a time."""
        rows = self._newest(workload, device, toolchain, None)
        timed = [(row.median_us, row.config, row.outcome) for row in rows if row.median_us]
        if not timed:
            return None
        _, config, outcome = min(timed, key=lambda each: each[:2])
        return Best(config=self._config(config), timing=self._read(Outcome, outcome))

    def sources(self, arch: str | None = None, toolchain: str | None = None) -> tuple[Source, ...]:
        """Return the devices and toolchains that have records, with most records first."""
        query = Query(arch=arch)
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT device, toolchain, records FROM bench "
                f"WHERE records > 0 AND {query.on_bench} ORDER BY records DESC, digest",
                query.values,
            ).fetchall()
        return tuple(
            Source(
                device=self._read(DeviceIdentity, device), toolchain=str(tools), records=int(count)
            )
            for device, tools, count in rows
            if toolchain in (None, tools)
        )

    def workloads(self) -> tuple[Workload, ...]:
        """Return all workloads that have or once had records."""
        with database_errors(self.path):
            rows = self._connection.execute("SELECT workload FROM task ORDER BY digest").fetchall()
        return tuple(self._read(Workload, workload) for (workload,) in rows)

    def void_records(self, source: Source) -> int:
        """Return the number of void records of a device and toolchain; see `Query.void`."""
        with database_errors(self.path):
            (count,) = self._connection.execute(
                "SELECT count(*) FROM record LEFT JOIN spec ON spec.id = record.spec WHERE "
                f"bench = (SELECT id FROM bench WHERE digest = ?) AND {VOID}",
                (bench_key(source.device, source.toolchain),),
            ).fetchone()
        return int(count)

    @property
    def size_bytes(self) -> int:
        """Return the size on disk in bytes, without data in the write-ahead log."""
        with database_errors(self.path):
            pragmas = [f"PRAGMA {name}" for name in ("page_count", "page_size")]
            pages, page_bytes = (self._connection.execute(p).fetchone()[0] for p in pragmas)
        return int(pages * page_bytes)

    def stamp(self, arch: str, toolchain: str) -> str:
        """Return a text that changes if records for `arch` by `toolchain` are added or deleted."""
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT stamp FROM bench WHERE arch = ? AND toolchain = ? AND records > 0 "
                "ORDER BY digest",
                (arch, toolchain),
            ).fetchall()
        return digest(tuple(stamp for (stamp,) in rows))

    def records(self, query: Query | None = None, *, best: bool = False) -> Iterator[Record]:
        """Yield all records that `query` selects, grouped by workload and bench.

        With `best`, yield only the fastest of the newest records per workload and bench.
        """
        chosen = query or Query()
        relation = f"{_BEST} AS record" if best else "record"
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT workload, config, device, toolchain, kernel.digest, "
                f"measured_at_us, outcome FROM {relation} {_JOINED} WHERE {chosen.on_record} "
                "ORDER BY record.task, record.bench, record.config, measured_at_us",
                chosen.values,
            )
            for row in rows:
                yield self._record(row)

    def _record(self, row: tuple[Any, ...]) -> Record:
        workload, config, device, toolchain, kernel, moment, outcome = row
        try:
            return Record(
                trial=Trial(
                    workload=self._read(Workload, workload),
                    config=self._config(config),
                ),
                kernel=decode(str, kernel, "kernel"),
                device=self._read(DeviceIdentity, device),
                toolchain=decode(str, toolchain, "toolchain"),
                outcome=self._read(Outcome, outcome),
                measured_at=EPOCH + decode(int, moment, "measured_at_us") * MICROSECOND,
            )
        except (RecordError, InvalidProblemError, OverflowError) as error:
            raise self._unknown(error) from error

    def history(self, workload: Workload, arch: str) -> tuple[Record, ...]:
        """Return all records of a workload on devices of an architecture, in order of time."""
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT workload, config, device, toolchain, kernel.digest, measured_at_us, "
                f"outcome FROM record {_JOINED} WHERE task.digest = ? AND bench.arch = ? "
                "ORDER BY measured_at_us",
                (task_key(workload), arch),
            ).fetchall()
        return tuple(map(self._record, rows))

    def prune(self, query: Query) -> int:
        """Delete the records that `query` selects; return their number."""
        with self._transaction():
            counts = dict(
                self._connection.execute(
                    f"SELECT record.bench, -count(*) FROM record {_JOINED} WHERE {query.on_record} "
                    "GROUP BY record.bench",
                    query.values,
                ).fetchall()
            )
            self._connection.execute(
                "DELETE FROM record WHERE (task, bench, config, measured_at_us, outcome) IN "
                "(SELECT record.task, record.bench, record.config, measured_at_us, outcome "
                f"FROM record {_JOINED} WHERE {query.on_record})",
                query.values,
            )
            self._count(counts)
        return -sum(counts.values())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with database_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._tables.forget()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _insert(self, record: Record, bench: int) -> int:
        trial = record.trial
        task = self._tables.task(trial.workload)
        config = self._tables.config(trial.config)
        kernel = self._tables.kernel(record.kernel)
        median_us = record.outcome.median_us if isinstance(record.outcome, Timing) else None
        moment = (record.measured_at - EPOCH) // MICROSECOND
        outcome = dumps(Outcome, record.outcome)
        spec = self._spec_of(record)
        values = (task, bench, config, moment, outcome, median_us, kernel, spec)
        cursor = self._connection.execute(
            "INSERT OR IGNORE INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values
        )
        return cursor.rowcount

    def _spec_of(self, record: Record) -> int | None:
        """Return the number of the kernel's spec, or None if the record never counts.

        A record never counts if its kernel has no content, as in old records, or if its
        configuration cannot compute its workload.
        """
        trial, arch = record.trial, record.device.arch
        if tells_no_content(record.toolchain):
            return None
        if FAMILIES.of(trial.config).rejects(trial.workload, arch_named(arch)) is not None:
            return None
        return self._tables.spec(trial.spec(arch), record.toolchain)

    def _count(self, changes: dict[int, int]) -> None:
        """Update the number of each bench's records, and mark the bench as changed."""
        for bench, change in changes.items():
            if change:
                self._connection.execute(
                    "UPDATE bench SET records = records + ?, stamp = hex(randomblob(8)) "
                    "WHERE id = ?",
                    (change, bench),
                )

    def _newest(
        self,
        workload: Workload,
        device: DeviceIdentity,
        toolchain: str,
        contents: Mapping[str, str] | None,
    ) -> list[_Row]:
        """Return the newest record that counts, for each configuration."""
        with database_errors(self.path):
            rows = self._connection.execute(
                "SELECT config, median_us, outcome, kernel.digest, spec.digest, newest.digest "
                "FROM record JOIN kernel ON kernel.id = kernel JOIN spec ON spec.id = spec "
                "LEFT JOIN kernel AS newest ON newest.id = spec.content WHERE "
                "task = (SELECT id FROM task WHERE digest = ?) AND "
                "bench = (SELECT id FROM bench WHERE digest = ?) ORDER BY measured_at_us",
                (task_key(workload), bench_key(device, toolchain)),
            ).fetchall()
        known = contents or {}
        found: dict[int, _Row] = {}
        try:
            for config, median, outcome, kernel, spec, newest in rows:
                if known.get(spec, newest) in (None, kernel):
                    found[config] = _Row(
                        config=config,
                        median_us=decode(float | None, median, "median_us"),
                        outcome=outcome,
                        kernel=decode(str, kernel, "kernel"),
                    )
        except RecordError as error:
            raise self._unknown(error) from error
        return list(found.values())

    def _config(self, number: int) -> Config:
        if number not in self._configs:
            with database_errors(self.path):
                (text,) = self._connection.execute(
                    "SELECT json FROM config WHERE id = ?", (number,)
                ).fetchone()
            self._configs[number] = self._read(Config, text)
        return self._configs[number]

    def _read(self, kind: Any, text: Any) -> Any:
        """Return a value that is stored in a row."""
        try:
            return loads(kind, decode(str, text))
        except RecordError as error:
            raise self._unknown(error) from error

    def _unknown(self, error: Exception) -> DatabaseError:
        return DatabaseError(
            f"database {self.path}: a row holds what this version of boltgen does not know "
            f"({error}); a newer one wrote it: install that"
        )
