"""The command `boltgen inspect`: shows a compiled model's metadata in lines for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from boltgen.artifact.coverage import coverage, rest_verdict
from boltgen.artifact.metadata import ChoiceInfo, GemmInfo, Metadata, RegionInfo
from boltgen.cli.terminal import tables
from boltgen.cli.terminal.console import errors_for_people, out, say
from boltgen.cli.terminal.flags import Debug, Folder
from boltgen.families.json_form import encode
from boltgen.intake.numerals import counted
from boltgen.running.artifact import Artifact

_HEAD = ("operators", "M", "N", "K", "kernel", "us", "share")
_LEFT = {0, 4}
_GAP = "  "
# The column of the facts in a line of the details.
_FACT = 12
# In fewer columns operators cannot be told apart.
_LEAST_OPERATORS = 12


def inspect_command(
    folder: Folder,
    details: Annotated[
        bool,
        typer.Option("--details", help="Everything: why each kernel, and what TVM computes."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The metadata and the verdict, for programs.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show a compiled model's regions, kernels and times.

    M, N and K are the sizes of the kernel's matmul; a plus joins the sizes of several matmuls. The
    share is the region's part of the time of all regions. The verdict at the end names the matmuls
    and convolutions that TVM computes, and why.

    \b
    Examples:
      boltgen inspect resnet50
      boltgen inspect resnet50 --details
      boltgen inspect resnet50 --json | jq '.regions[].time_us'
    """
    with errors_for_people(debug):
        artifact = Artifact.load(folder)
    if as_json:
        typer.echo(as_text(artifact.metadata))
        return
    metadata = artifact.metadata
    for line in region_lines(metadata, out.width):
        say(line, wrap=False)
    if details:
        for line in _details(metadata):
            say(line, indent=_FACT if line.startswith("  ") else 2)
        if metadata.ranges:
            out.print(tables.ranges(metadata))
        for line in tables.phases(metadata):
            say(line)
    for line in summary(artifact) if details else _verdict(metadata):
        say(line)


def as_text(metadata: Metadata) -> str:
    """Return all metadata of a compiled model as JSON."""
    found = coverage(metadata.placements)
    said: Any = encode(Metadata, metadata)
    verdict = {**asdict(found), "share": found.share, "verdict": found.verdict()}
    return json.dumps({**said, "coverage": verdict}, indent=2)


def region_lines(metadata: Metadata, width: int) -> Iterator[str]:
    """Yield a header, a line for each region, and facts about all; lines have `width` columns.

    Names of operators are truncated if there is no room; numbers never are.
    """
    total_us = sum(region.time_us or 0.0 for region in metadata.regions)
    rows = [_HEAD, *(_row(region, total_us) for region in metadata.regions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)
    widths[0] = max(min(widths[0], room), _LEAST_OPERATORS)
    if metadata.regions:
        for row in rows:
            yield _line(row, widths)
    yield (
        f"{_one_line(metadata.model)} for {metadata.arch}: {_sizes(metadata)}, {total_us:.1f} us"
        + _origins(metadata)
    )


def _sizes(metadata: Metadata) -> str:
    regions, kernels = len(metadata.regions), len(metadata.kernels)
    return f"{counted(regions, 'region')} in {counted(kernels, 'kernel')}"


def _row(region: RegionInfo, total_us: float) -> tuple[str, ...]:
    time_us = region.time_us
    return (
        shown_label(region.label),
        _extents(
            [f"{each.batch}x{each.m}" if each.batch != 1 else each.m for each in region.gemms]
        ),
        _extents([each.n for each in region.gemms]),
        _extents([each.k for each in region.gemms]),
        f"{region.family} {region.tile}".strip(),
        "" if time_us is None else f"{time_us:.1f}",
        f"{time_us / total_us:.1%}" if time_us and total_us else "",
    )


def _rows(gemm: GemmInfo) -> str:
    """Return M, after the batch if there is one."""
    return str(gemm.m) if gemm.batch == 1 else f"{gemm.batch}x{gemm.m}"


def _choice(choice: ChoiceInfo) -> str:
    return f"{choice.sizes}: {choice.config}, {choice.time_us:.1f} us, {choice.origin}"


def _regret(regret: float | None) -> str:
    if regret is None:
        return ""
    return f"{regret - 1:.1%} slower on average than a kernel of its own for each size"


def shown_label(label: str) -> str:
    """Return a region's operators as its row shows them."""
    return _one_line(label.replace(" + ", "+"))


def _one_line(name: str) -> str:
    """Return a name, which may contain anything, without line breaks."""
    return " ".join(name.split())


def _extents(each: Sequence[object]) -> str:
    """Return the extents of a kernel's matmuls; only one if they are equal."""
    return "+".join(dict.fromkeys(map(str, each)))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        _cut(cell, width).ljust(width) if index in _LEFT else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return _GAP.join(cells)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 2]}.."


def _origins(metadata: Metadata) -> str:
    """Name the origins of the regions' times, with counts if there are several."""
    counts = Counter(region.origin for region in metadata.regions if region.time_us is not None)
    if len(counts) < 2:
        return "".join(f", {origin}" for origin in counts)
    return ": " + "; ".join(f"{count} {origin}" for origin, count in counts.most_common())


def _verdict(metadata: Metadata) -> Iterator[str]:
    """Yield facts about the whole model; the share of its work comes last."""
    elsewhere = sum(placed.region is None for placed in metadata.placements)
    if elsewhere or metadata.notes:
        notes = f", notes: {len(metadata.notes)}" if metadata.notes else ""
        yield f"operators that TVM computes: {elsewhere}{notes}; --details names them"
    yield from checked_lines(metadata)
    yield from _rest_lines(metadata)
    yield coverage(metadata.placements).verdict()


def summary(artifact: Artifact) -> Iterator[str]:
    """Yield the facts that a user needs after a compilation, and the files to open."""
    metadata = artifact.metadata
    yield (
        f"{_sizes(metadata)} for {metadata.arch}; "
        f"inputs {'; '.join(map(str, metadata.inputs))}; "
        f"outputs {'; '.join(map(str, metadata.outputs))}"
    )
    yield from metadata.notes
    yield "worth opening:"
    for path in artifact.worth_opening():
        yield f"  {path}"
    yield from checked_lines(metadata)
    yield from _rest_lines(metadata)
    yield coverage(metadata.placements).verdict()


def _rest_lines(metadata: Metadata) -> Iterator[str]:
    """Yield the time of TVM's own kernels if it is known."""
    if metadata.rest is not None:
        regions_us = sum(region.time_us or 0.0 for region in metadata.regions)
        rest_us = sum(each.time_us for each in metadata.rest)
        launches = sum(each.count for each in metadata.rest)
        # A region of dynamic sizes has the time for sizes in the middle of their ranges.
        is_open = any(region.choices for region in metadata.regions)
        is_open = is_open or any(each.is_open for each in metadata.rest)
        yield rest_verdict(launches, rest_us, regions_us, is_open=is_open)


def checked_lines(metadata: Metadata) -> Iterator[str]:
    """Yield the result of executing the library, and the replacements that followed."""
    check = metadata.check
    yield str(check) if check else "not checked: an older version of boltgen wrote it"
    yield from check.replaced if check else ()
    yield from _audit_lines(metadata)


def _audit_lines(metadata: Metadata) -> Iterator[str]:
    """Yield whether ptxas's report of the kernels passed the audit."""
    missing = sum(kernel.registers is None for kernel in metadata.kernels)
    if missing:
        yield (
            f"{counted(missing, 'kernel')} of {len(metadata.kernels)} not audited: ptxas reported "
            "nothing, as for BOLTGEN_DEVICE_CODE=ptx"
        )
    elif metadata.kernels:
        yield (
            f"{counted(len(metadata.kernels), 'kernel')} audited: no spilled registers, no local "
            "memory, no serialised wgmma"
        )


def _details(metadata: Metadata) -> Iterator[str]:
    """List each region with all metadata, the kernels, and the operators that TVM computes."""
    said = {placed.region: placed for placed in metadata.placements}
    for region in metadata.regions:
        placed = said.get(region.symbol)
        yield ""
        yield f"{region.symbol}: {region.label}"
        facts = [
            ("shape", "x".join(map(str, placed.shape)) if placed else ""),
            ("problem", region.problem),
            ("epilogue", region.epilogue),
            ("kernel", region.kernel),
            ("why", region.why),
            *(("call", move) for move in region.moves),
            *(("choice", _choice(each)) for each in region.choices),
            ("range", _regret(region.regret)),
            ("workspace", f"{region.workspace_bytes} bytes" if region.workspace_bytes else ""),
            ("note", placed.reason if placed else ""),
        ]
        yield from (f"  {name}".ljust(_FACT) + fact for name, fact in facts if fact)
    yield ""
    yield "kernels:"
    for kernel in metadata.kernels:
        users = sum(region.runs(kernel.symbol) for region in metadata.regions)
        registers = "unknown" if kernel.registers is None else kernel.registers
        yield (
            f"  {kernel.symbol}: {kernel.config}, of {counted(users, 'region')}, "
            f"registers: {registers}, {kernel.source}"
        )
    rest = Counter(
        (placed.operator, placed.reason) for placed in metadata.placements if not placed.region
    )
    if rest:
        yield "TVM computes:"
        for (operator, reason), count in rest.most_common():
            yield f"  {count} x {operator}: {reason}"
    if metadata.rest:
        yield "TVM's own kernels take at least, by the model:"
        for each in metadata.rest:
            schedule = f"; {each.schedule}" if each.schedule else ""
            yield f"  {each.count} x {each.name}: {each.time_us:.1f} us{schedule}"
    if metadata.padding:
        yield "channels that are no multiple of 8:"
        yield from (f"  {line}" for line in metadata.padding)
    yield ""
