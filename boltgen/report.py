"""Tables for people, from a compiled model's metadata and from tuning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from boltgen.ir.chain import AnyProblem, Conv2dChain, GemmChain, layers_of
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from boltgen.runtime.coverage import Coverage
from boltgen.runtime.metadata import Metadata, RangeInfo, RegionInfo
from boltgen.tune.advice import Advice
from boltgen.tune.database import Source
from boltgen.tune.outcome import DeviceKind, Timing
from boltgen.tune.records import Record
from boltgen.tune.select import AnyTask, Task
from boltgen.tune.session import SessionReport

# Ranges that are shown though FP16 holds them.
_MOST_RANGES = 8


def operators(metadata: Metadata) -> Table:
    """Each operator, where it runs, and with which kernel or why not in one."""
    regions = {region.symbol: region for region in metadata.regions}
    table = Table("operator", "shape", "runs in", "kernel and configuration, or why TVM")
    for placed in metadata.placements:
        region = regions.get(placed.region or "")
        where = "boltgen" if region else "TVM"
        said = [placed.reason]
        if region:
            said = [region.kernel, region.why, *region.moves, _workspace(region), placed.reason]
        detail = "\n".join(filter(None, said))
        shape = "x".join(map(str, placed.shape))
        table.add_row(Text(placed.operator), shape, where, Text(detail, overflow="fold"))
    return table


def _workspace(region: RegionInfo) -> str:
    return f"workspace of {region.workspace_bytes} bytes" if region.workspace_bytes else ""


def kernels(metadata: Metadata) -> Table:
    """Each kernel, its configuration, and how many regions use it."""
    table = Table("kernel", "configuration", "regions")
    for kernel in metadata.kernels:
        users = sum(region.kernel == kernel.symbol for region in metadata.regions)
        table.add_row(Text(kernel.symbol, overflow="fold"), kernel.config, str(users))
    return table


def padding(metadata: Metadata) -> Table:
    """Each product whose tensors could have more channels than the model says; what was chosen."""
    table = Table("channels that are no multiple of 8: what was chosen, and why")
    for line in metadata.padding:
        table.add_row(Text(line, overflow="fold"))
    return table


def rest(found: Coverage) -> Table:
    """The products that stay with TVM, those with most of the work first."""
    table = Table("stays with TVM", "products", "of all work", "why, and what to change")
    for each in found.rest:
        share = each.flops / found.total_flops
        reason = Text(each.reason, overflow="fold")
        table.add_row(Text(each.operator), str(each.count), f"{share:.1%}", reason)
    return table


def ranges(metadata: Metadata) -> Table:
    """The tensors with the largest numbers on the calibration inputs, and which stay FP32."""
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


def phases(metadata: Metadata) -> Table:
    """The time of each phase of the compilation."""
    table = Table("phase", "seconds")
    for phase in metadata.phases:
        table.add_row(phase.name, f"{phase.seconds:.2f}")
    return table


_KINDS = {
    DeviceKind.CUDA: "measured",
    DeviceKind.VGPU: "modelled",
    DeviceKind.RECORDED: "replayed",
}


def advice(given: Sequence[Advice]) -> Table:
    """Each change with what it costs, and where its times are from."""
    table = Table("layer", "problem", "change", "to", "us before", "us after", "cost", "times")
    for each in given:
        table.add_row(
            Text(each.layer.name, overflow="fold"),
            Text(_short(each.layer.problem), overflow="fold"),
            each.change.value,
            each.what,
            f"{each.before_us:.1f}",
            f"{each.after_us:.1f}",
            f"{each.cost:+.1%}",
            Text(each.origin, overflow="fold"),
        )
    return table


_TIMES = {
    DeviceKind.CUDA: "times measured on {name} ({arch})",
    DeviceKind.VGPU: "times modelled by the virtual GPU as {name} ({arch}), not measured",
    DeviceKind.RECORDED: "times replayed from records of {name} ({arch})",
}


def tuned(session: SessionReport) -> Table:
    """Each task with the fastest launch that is known, those with most of the time first."""
    table = Table("problem", "epilogue", "runs", "best configuration", "us", "tried", "failed")
    results = sorted(session.results, key=lambda result: -(result.total_us or 0.0))
    for result in results:
        best = result.best
        why = result.failures[0].reason if result.failures else "not reached within the budget"
        table.add_row(
            Text(_short(result.task.problem), overflow="fold"),
            Text(_epilogues(result.task.problem, result.task.epilogue), overflow="fold"),
            _runs(result.task),
            Text(str(best.config) if best else f"none: {why}", overflow="fold"),
            f"{best.timing.median_us:.1f}" if best else "",
            str(result.timed + len(result.failures)),
            str(len(result.failures)),
        )
    return table


def _runs(task: AnyTask) -> str:
    """How often the model runs a task."""
    is_alternative = isinstance(task, Task) and task.is_alternative
    return "if padded so" if is_alternative else str(task.occurrences)


def _short(problem: AnyProblem) -> str:
    """Enough of a problem for people to know it by."""
    match problem:
        case Gemm(m=m, n=n, k=k):
            return f"gemm {m}x{n}x{k}"
        case BatchedGemm(batch=batch, m=m, n=n, k=k):
            return f"{batch} x gemm {m}x{n}x{k}"
        case Conv2d(n=n, h=h, w=w, c=c, k=k, r=r, s=s, stride=stride):
            stride_text = "" if stride == (1, 1) else f", stride {stride[0]}x{stride[1]}"
            return f"conv {n}x{h}x{w}x{c} to {k}, {r}x{s}{stride_text}"
        case GemmChain(layers=layers) | Conv2dChain(layers=layers):
            return "one kernel: " + "; ".join(_short(layer.problem) for layer in layers)


def _epilogues(problem: AnyProblem, epilogue: ElementwiseGraph) -> str:
    """What is done to the product, or to each of a chain's."""
    return "; ".join(layer.epilogue.describe() for layer in layers_of(problem, epilogue))


def tuning_summary(session: SessionReport) -> str:
    """What the session did, in sentences of one line each."""
    device = session.device
    total = f"; all products, each by itself, {session.model_us:.1f} us" if session.model_us else ""
    lines = [
        _TIMES[device.kind].format(name=device.name, arch=device.arch) + total,
        f"{session.measured} trials in {session.seconds:.1f} s, {session.failed} of them failed; "
        f"{session.reused} were known",
    ]
    if not session.results:
        lines.append("the model has nothing to tune: boltgen computes no product of it")
    if session.stopped:
        lines.append(f"ended early: {session.stopped}; what was measured is kept")
    if session.drift:
        lines.append(session.drift)
    return "\n".join(lines)


def sources(found: Sequence[Source], own_toolchain: str | None) -> Table:
    """Each device and toolchain in a database; whether kernels are chosen by its records here."""
    table = Table("device", "arch", "times are", "driver", "toolchain", "records", "used here")
    for source in found:
        device = source.device
        table.add_row(
            Text(device.name, overflow="fold"),
            device.arch,
            _KINDS[device.kind],
            device.driver,
            Text(source.toolchain, overflow="fold"),
            str(source.records),
            "yes" if source.toolchain == own_toolchain else "no: another toolchain",
        )
    return table


def records(found: Iterable[Record]) -> Table:
    """Measurements, one a line."""
    table = Table("problem", "epilogue", "configuration", "us", "device", "measured")
    for record in found:
        outcome = record.outcome
        result = f"{outcome.median_us:.2f}" if isinstance(outcome, Timing) else outcome.fault.value
        table.add_row(
            Text(_short(record.trial.problem), overflow="fold"),
            Text(_epilogues(record.trial.problem, record.trial.epilogue), overflow="fold"),
            Text(str(record.trial.config), overflow="fold"),
            result,
            Text(f"{record.device.name} ({_KINDS[record.device.kind]})", overflow="fold"),
            record.measured_at.strftime("%Y-%m-%d %H:%M"),
        )
    return table
