"""Tables for people: advice, tuning, records, and ranges of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from boltgen.artifact.metadata import Metadata, RangeInfo
from boltgen.intake.numerals import counted
from boltgen.ir.outcome import DeviceKind, Timing
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.database import Source
from boltgen.tuning.database.records import Record, tells_no_content
from boltgen.tuning.session.report import SessionReport

# The most tensors that are shown although FP16 can represent them.
_MOST_RANGES = 8


def ranges(metadata: Metadata) -> Table:
    """List the tensors with the largest numbers on the calibration inputs, and the FP32 ones."""
    table = Table("operator", "shape", "lowest", "highest", "kept in FP32")
    largest = sorted(metadata.ranges, key=lambda found: -_size(found))
    for found in largest:
        if found.is_kept_wide or table.row_count < _MOST_RANGES:
            shape = "x".join(map(str, found.shape))
            kept = "yes" if found.is_kept_wide else ""
            table.add_row(Text(found.operator), shape, found.low, found.high, kept)
    if len(largest) > table.row_count:
        table.caption = f"{len(largest) - table.row_count} more are in metadata.json"
    return table


def _size(found: RangeInfo) -> float:
    size = max(-float(found.low), float(found.high))
    return math.inf if math.isnan(size) else size


def phases(metadata: Metadata) -> Iterator[str]:
    """Yield the time of each phase of the compilation."""
    yield f"{sum(phase.seconds for phase in metadata.phases):8.2f} s in all"
    for phase in metadata.phases:
        yield f"{phase.seconds:8.2f} s {phase.name}"


_KINDS = {
    DeviceKind.CUDA: "measured",
    DeviceKind.VGPU: "modelled",
    DeviceKind.RECORDED: "replayed",
}


_TIMES = {
    DeviceKind.CUDA: "times measured on {name} ({arch})",
    DeviceKind.VGPU: "times modelled by the virtual GPU as {name} ({arch}), not measured",
    DeviceKind.RECORDED: "times replayed from records of {name} ({arch})",
}


def tuned(session: SessionReport) -> Table:
    """List each task with its fastest known launch, slowest task first."""
    table = Table("problem", "epilogue", "runs", "best configuration", "us", "tried", "failed")
    results = sorted(session.results, key=lambda result: -(result.total_us or 0.0))
    for result in results:
        best = result.best
        why = result.failures[0].reason if result.failures else "not reached within the budget"
        table.add_row(
            Text(result.task.workload.short, overflow="fold"),
            Text(result.task.workload.epilogues, overflow="fold"),
            _runs(result.task),
            Text(str(best.config) if best else f"none: {why}", overflow="fold"),
            f"{best.timing.median_us:.1f}" if best else "",
            str(result.timed + len(result.failures)),
            str(len(result.failures)),
        )
    return table


def searches(session: SessionReport) -> Table:
    """List how each task's best time fell, and why its fastest configuration was tried."""
    table = Table("problem", "epilogue", "us of the best so far, by trial", "the last, because")
    for result in session.results:
        if result.course:
            steps = ", ".join(f"{each.trial}: {each.median_us:.1f}" for each in result.course)
            table.add_row(
                Text(result.task.workload.short, overflow="fold"),
                Text(result.task.workload.epilogues, overflow="fold"),
                Text(steps, overflow="fold"),
                Text(result.course[-1].why, overflow="fold"),
            )
    return table


def kept(session: SessionReport) -> Table:
    """List TVM's own kernels, built in and tuned, slowest first."""
    table = Table("TVM's kernel", "runs", "us built in", "us", "schedule", "tried", "failed")
    for each in sorted(session.rest, key=lambda one: -one.uses * (one.best_us or 0.0)):
        table.add_row(
            Text(each.name, overflow="fold"),
            f"{each.uses:g}",
            f"{each.built_in_us:.1f}" if each.built_in_us else "",
            f"{each.best_us:.1f}" if each.best_us else "",
            each.best or "none: not reached within the budget",
            str(each.timed + each.failed),
            str(each.failed),
        )
    return table


def _runs(task: Task) -> str:
    """Return the number of a task's launches in the model, as text."""
    return "if chosen" if task.is_alternative else str(task.occurrences)


def tuning_summary(session: SessionReport) -> str:
    """Summarise the session in lines of one sentence each."""
    device = session.device
    total = f"; all products, each by itself, {session.model_us:.1f} us" if session.model_us else ""
    lines = [
        _TIMES[device.kind].format(name=device.name, arch=device.arch) + total,
        f"{counted(session.measured, 'trial')} in {session.seconds:.1f} s, "
        f"{session.failed} of them failed; {session.reused} were known",
    ]
    if not session.results and not session.rest:
        lines.append("the model has nothing to tune: boltgen computes no product of it")
    if session.stopped:
        lines.append(f"ended early: {session.stopped}; what was measured is kept")
    if session.drift:
        lines.append(session.drift)
    return "\n".join(lines)


def sources(found: Iterable[tuple[Source, int]], own_toolchain: str | None) -> Table:
    """List the devices and toolchains in a database.

    Each has the number of void records, and whether its records choose kernels here.
    """
    table = Table("device", "arch", "times are", "driver", "toolchain", "records", "used here")
    for source, void in found:
        device = source.device
        table.add_row(
            Text(device.name, overflow="fold"),
            device.arch,
            _KINDS[device.kind],
            device.driver,
            Text(source.toolchain, overflow="fold"),
            str(source.records),
            _use(source, void, own_toolchain),
        )
    return table


def _use(source: Source, void: int, own_toolchain: str | None) -> str:
    if tells_no_content(source.toolchain):
        return "no: void, recorded before kernels were told by their content"
    if source.toolchain != own_toolchain:
        return "no: another toolchain"
    return f"yes, but {void} void: their kernels have changed" if void else "yes"


def records(found: Iterable[Record]) -> Table:
    """List measurements, one per line."""
    table = Table("problem", "epilogue", "configuration", "us", "device", "measured")
    for record in found:
        outcome = record.outcome
        result = f"{outcome.median_us:.2f}" if isinstance(outcome, Timing) else outcome.fault.value
        table.add_row(
            Text(record.trial.workload.short, overflow="fold"),
            Text(record.trial.workload.epilogues, overflow="fold"),
            Text(str(record.trial.config), overflow="fold"),
            result,
            Text(f"{record.device.name} ({_KINDS[record.device.kind]})", overflow="fold"),
            record.measured_at.strftime("%Y-%m-%d %H:%M"),
        )
    return table
