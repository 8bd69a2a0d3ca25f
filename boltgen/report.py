"""Tables for people, from a compiled model's metadata and from tuning."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from boltgen.ir.problem import describe
from boltgen.runtime.metadata import Metadata
from boltgen.tune.outcome import DeviceKind
from boltgen.tune.session import SessionReport


def operators(metadata: Metadata) -> Table:
    """Each operator, where it runs, and with which kernel or why not in one."""
    regions = {region.symbol: region for region in metadata.regions}
    table = Table("operator", "shape", "runs in", "kernel and configuration, or why TVM")
    for placed in metadata.placements:
        region = regions.get(placed.region or "")
        where = "boltgen" if region else "TVM"
        detail = f"{region.kernel}\n{region.why}" if region else placed.reason
        shape = "x".join(map(str, placed.shape))
        table.add_row(Text(placed.operator), shape, where, Text(detail, overflow="fold"))
    return table


def kernels(metadata: Metadata) -> Table:
    """Each kernel, its configuration, and how many regions use it."""
    table = Table("kernel", "configuration", "regions")
    for kernel in metadata.kernels:
        users = sum(region.kernel == kernel.symbol for region in metadata.regions)
        table.add_row(Text(kernel.symbol, overflow="fold"), kernel.config, str(users))
    return table


def phases(metadata: Metadata) -> Table:
    """The time of each phase of the compilation."""
    table = Table("phase", "seconds")
    for phase in metadata.phases:
        table.add_row(phase.name, f"{phase.seconds:.2f}")
    return table


_TIMES = {
    DeviceKind.CUDA: "times measured on {name} ({arch})",
    DeviceKind.VGPU: "times modelled by the virtual GPU as {name} ({arch}), not measured",
    DeviceKind.RECORDED: "times replayed from records of {name} ({arch})",
}


def tuned(session: SessionReport) -> Table:
    """Each task with the fastest launch that is known, those with most of the time first."""
    table = Table("problem", "epilogue", "times", "best configuration", "us", "tried", "failed")
    results = sorted(session.results, key=lambda result: -(result.total_us or 0.0))
    for result in results:
        best = result.best
        why = result.failures[0].reason if result.failures else "not reached within the budget"
        table.add_row(
            Text(describe(result.task.problem), overflow="fold"),
            Text(result.task.epilogue.describe(), overflow="fold"),
            str(result.task.occurrences),
            Text(str(best.config) if best else f"none: {why}", overflow="fold"),
            f"{best.timing.median_us:.1f}" if best else "",
            str(result.timed + len(result.failures)),
            str(len(result.failures)),
        )
    return table


def tuning_summary(session: SessionReport) -> str:
    """What the session did, in sentences of one line each."""
    device = session.device
    total = f"; all tasks together {session.model_us:.1f} us" if session.model_us else ""
    lines = [
        _TIMES[device.kind].format(name=device.name, arch=device.arch) + total,
        f"{session.measured} trials in {session.seconds:.1f} s, {session.failed} of them failed; "
        f"{session.reused} were known",
    ]
    if session.stopped:
        lines.append(f"ended early: {session.stopped}; what was measured is kept")
    if session.drift:
        lines.append(session.drift)
    return "\n".join(lines)
