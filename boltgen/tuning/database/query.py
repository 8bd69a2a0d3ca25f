"""Conditions that select records in a database, and their SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from boltgen.ir.outcome import DeviceKind

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)

# A condition on `record` joined with `spec`, whose `content` is the newest known one.
VOID = "(spec.id IS NULL OR (spec.content IS NOT NULL AND spec.content <> record.kernel))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Conditions that must all hold; a field that is None sets no condition.

    `device` is a part of the device's name, `toolchain` of the toolchain's text. `operation` is the
    class of a layer's problem ("Gemm"). `before` is an instant, in UTC unless it has a time zone.
    `failures` selects only failures (True) or only times (False). `void` selects only records that
    do not count (True), or only ones that do (False). A record does not count if its kernel now
    compiles to another content, or if it is older than the identification of kernels by content.
    """

    arch: str | None = None
    kind: DeviceKind | None = None
    device: str | None = None
    toolchain: str | None = None
    operation: str | None = None
    before: datetime | None = None
    failures: bool | None = None
    void: bool | None = None

    @property
    def on_bench(self) -> str:
        """The conditions on the table `bench`, as SQL."""
        conditions = {
            "bench.arch = :arch": self.arch,
            "bench.kind = :kind": self.kind,
            "instr(lower(bench.name), lower(:device)) > 0": self.device,
            "instr(bench.toolchain, :toolchain) > 0": self.toolchain,
        }
        asked = [sql for sql, value in conditions.items() if value is not None]
        return " AND ".join(asked) or "1"

    @property
    def on_record(self) -> str:
        """All conditions, on `record` joined with `bench`, `task` and `spec`, as SQL."""
        asked = [self.on_bench]
        if self.operation is not None:
            asked.append('instr(task.workload, \'"problem":{"type":"\' || :operation || \'"\') > 0')
        if self.before is not None:
            asked.append("record.measured_at_us < :before")
        if self.failures is not None:
            asked.append(f"record.median_us IS {'' if self.failures else 'NOT '}NULL")
        if self.void is not None:
            asked.append(VOID if self.void else f"NOT {VOID}")
        return " AND ".join(asked)

    @property
    def values(self) -> dict[str, str | int | None]:
        """The values of the conditions' parameters."""
        return {
            "arch": self.arch,
            "kind": self.kind.value if self.kind else None,
            "device": self.device,
            "toolchain": self.toolchain,
            "operation": self.operation,
            "before": _microseconds(self.before) if self.before else None,
        }


def _microseconds(moment: datetime) -> int:
    return (
        (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)) - EPOCH
    ) // MICROSECOND
