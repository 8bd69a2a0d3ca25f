"""Times of TVM's own kernels in the database, by kernel identity and schedule.

Arrow: from outcomes of `tuning.rest.tasks` to rows, and back for `boltgen compile`.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from boltgen.errors import DatabaseError, RecordError
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Outcome, Timing
from boltgen.tuning.database.connection import database_errors
from boltgen.tuning.database.query import EPOCH, MICROSECOND
from boltgen.tuning.database.records import dumps, loads
from boltgen.tuning.database.small_tables import SmallTables, bench_key
from boltgen.tuning.rest.tasks import RestTrial

# Measured times are preferred to times that the virtual GPU models.
_RANK = {DeviceKind.CUDA: 0, DeviceKind.RECORDED: 1, DeviceKind.VGPU: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTimes:
    """The median times of a kernel's schedules on one device."""

    device: DeviceIdentity
    by_config: Mapping[str, float]


class RestRecords:
    """The table `rest` of the database in the file `path`; a part of `Database`."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        tables: SmallTables,
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._connection = connection
        self._tables = tables
        self._transaction = transaction

    def add(
        self,
        trial: RestTrial,
        outcome: Outcome,
        bench: tuple[DeviceIdentity, str],
        measured_at: datetime,
    ) -> None:
        """Write the outcome of a kernel's schedule on a device, by a toolchain."""
        with self._transaction():
            self._connection.execute(
                "INSERT OR IGNORE INTO rest VALUES (?, ?, ?, ?, ?, ?)",
                (
                    trial.task,
                    self._tables.bench(*bench),
                    trial.config,
                    (measured_at - EPOCH) // MICROSECOND,
                    dumps(Outcome, outcome),
                    outcome.median_us if isinstance(outcome, Timing) else None,
                ),
            )

    def outcomes(self, task: str, bench: tuple[DeviceIdentity, str]) -> dict[str, Outcome]:
        """Return the newest outcome of every schedule of a kernel that was tried on a bench."""
        rows = self._rows(
            "SELECT config, outcome FROM rest WHERE task = ? AND "
            "bench = (SELECT id FROM bench WHERE digest = ?) ORDER BY measured_at_us",
            (task, bench_key(*bench)),
        )
        return {str(config): self._read(Outcome, outcome) for config, outcome in rows}

    def times(
        self, task: str, arch: str, toolchain: str, device: DeviceIdentity | None = None
    ) -> RestTimes | None:
        """Return the newest times of a kernel on `device`, else on another device of `arch`.

        GPUs come before the virtual GPU, then devices with more times come first.
        """
        rows = self._rows(
            "SELECT bench.device, config, median_us FROM rest JOIN bench ON bench.id = bench "
            "WHERE task = ? AND arch = ? AND toolchain = ? ORDER BY measured_at_us",
            (task, arch, toolchain),
        )
        found: dict[DeviceIdentity, dict[str, Any]] = defaultdict(dict)
        for text, config, median_us in rows:
            found[self._read(DeviceIdentity, text)][str(config)] = median_us
        timed = [
            RestTimes(device=each, by_config={c: us for c, us in times.items() if us is not None})
            for each, times in found.items()
        ]
        return min(
            (each for each in timed if each.by_config),
            key=lambda each: (
                each.device != device,
                _RANK[each.device.kind],
                -len(each.by_config),
            ),
            default=None,
        )

    def stamp(self, arch: str) -> str:
        """Return a text that changes whenever the times for `arch` may change."""
        (row,) = self._rows(
            "SELECT count(*), max(measured_at_us) FROM rest JOIN bench ON bench.id = bench "
            "WHERE arch = ?",
            (arch,),
        )
        return digest(tuple(str(each) for each in row))

    def _rows(self, sql: str, values: tuple[str, ...]) -> list[Any]:
        with database_errors(self._path):
            return self._connection.execute(sql, values).fetchall()

    def _read(self, kind: Any, text: Any) -> Any:
        try:
            return loads(kind, text)
        except RecordError as error:
            raise DatabaseError(
                f"database {self._path}: a row of the table rest is damaged ({error})"
            ) from error
