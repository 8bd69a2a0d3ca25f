"""Rows of the small tables, to which records refer by number.

tasks, configurations, specs, kernels, benches --> numbers
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from boltgen.families.family import Config
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity
from boltgen.problems.workload import Workload
from boltgen.tuning.database.records import dumps, spec_key, task_key

# The most rows whose numbers a connection caches.
_MOST_REMEMBERED = 100_000


class SmallTables:
    """The row numbers of values; a missing row is added in the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[tuple[str, object], int] = {}

    def forget(self) -> None:
        """Clear cached numbers, because the transaction that added their rows was rolled back."""
        self._numbers.clear()

    def task(self, workload: Workload) -> int:
        """Return the number of a workload."""
        return self._number(
            "task",
            ("digest", "workload"),
            workload,
            lambda: (task_key(workload), dumps(Workload, workload)),
        )

    def config(self, config: Config) -> int:
        """Return the number of a configuration."""
        return self._number("config", ("json",), config, lambda: (dumps(Config, config),))

    def kernel(self, content: str) -> int:
        """Return the number of a compiled kernel with this content."""
        return self._number("kernel", ("digest",), content, lambda: (content,))

    def spec(self, spec: KernelSpec, toolchain: str) -> int:
        """Return the number of a kernel spec with its toolchain."""
        return self._number(
            "spec", ("digest",), (spec, toolchain), lambda: (spec_key(spec, toolchain),)
        )

    def bench(self, device: DeviceIdentity, toolchain: str) -> int:
        """Return the number of a device with its toolchain."""
        columns = ("digest", "kind", "arch", "name", "device", "toolchain")
        return self._number(
            "bench",
            columns,
            (device, toolchain),
            lambda: (
                bench_key(device, toolchain),
                device.kind.value,
                device.arch,
                device.name,
                dumps(DeviceIdentity, device),
                toolchain,
            ),
        )

    def _number(
        self,
        table: str,
        columns: tuple[str, ...],
        value: object,
        row: Callable[[], tuple[str, ...]],
    ) -> int:
        """Return the number of `value`'s row in a small table, whose first column is the key."""
        known = self._numbers.get((table, value))
        if known is not None:
            return known
        texts = row()
        marks = ", ".join("?" for _ in texts)
        self._connection.execute(
            f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})", texts
        )
        (number,) = self._connection.execute(
            f"SELECT id FROM {table} WHERE {columns[0]} = ?", texts[:1]
        ).fetchone()
        if len(self._numbers) >= _MOST_REMEMBERED:
            self._numbers.clear()
        self._numbers[table, value] = int(number)
        return int(number)


def bench_key(device: DeviceIdentity, toolchain: str) -> str:
    """Return the identity of a device with the toolchain of its kernels."""
    return digest(device, toolchain)
