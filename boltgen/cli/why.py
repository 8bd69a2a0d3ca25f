"""The command `boltgen why`: shows what the passes did with an operator, or why TVM computes it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from boltgen.cli.inspect import shown_label
from boltgen.cli.terminal.console import errors_for_people, say
from boltgen.cli.terminal.flags import DEFAULT_ARCH, Arch, Debug, Model, with_options
from boltgen.device.asked_arch import asked_arch
from boltgen.errors import BoltgenError
from boltgen.graph.difference import changed, operator_of
from boltgen.graph.graph import CONSTANT, INPUT, OPAQUE, PART, REGION
from boltgen.intake.numerals import counted
from boltgen.options import ModelOptions
from boltgen.passes.run import Partitioned
from boltgen.passes.trace import IMPORTED, Step, read_trace
from boltgen.pipeline import PipelineOptions
from boltgen.problems.region import Placement
from boltgen.tvm_build.model import import_model, partition

# The most lines of one kind that are shown in full.
_MOST_LINES = 3
_MOST_NAMES = 12

# Names in graphs that are no operators; an opaque call has its function's name.
_NO_OPERATORS = {INPUT, CONSTANT, PART, REGION, OPAQUE}

Steps = Mapping[str, Sequence[Step]]


@with_options(
    ModelOptions, only=frozenset({"shapes", "frontend", "precision", "accumulate", "fuse", "pad"})
)
def why_command(
    *,
    model: Model,
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR",
            help="An operator or a region, by the name that `inspect` shows.",
        ),
    ],
    arch: Arch = DEFAULT_ARCH,
    options: ModelOptions,
    debug: Debug = False,
) -> None:
    """Say why an operator has its kernel, or none.

    The passes that changed such operators come first, then the choices between kernels by predicted
    times, then the regions that compute such operators. The operators that TVM computes come last,
    with the reason of each pass that left one to TVM. Nothing is compiled.

    \b
    Examples:
      boltgen why bert.onnx softmax
      boltgen why bert.onnx layer_norm --shape input_ids=1,128
      boltgen why resnet50.onnx conv2d+add+relu
    """
    with errors_for_people(debug, interrupted="nothing was written"):
        lines = why_model(model, operator, arch, options)
    for line in lines:
        say(line)


def why_model(model: object, operator: str, arch: str, options: ModelOptions) -> list[str]:
    """Return lines on what the passes for `arch` did with the operators of a name in a model.

    Raises:
        BoltgenError: the model has no such operator; the message has similar names.
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
    """
    with tempfile.TemporaryDirectory(prefix="boltgen-") as folder:
        row = asked_arch(arch)
        pipeline = replace(PipelineOptions(**options.of_model), trace=Path(folder))
        imported = import_model(model, pipeline)
        partition(imported, row.name, pipeline)
        steps = read_trace(Path(folder))
    return list(why(imported.partitioned, steps, operator))


def why(partitioned: Partitioned, steps: Steps, operator: str) -> Iterator[str]:
    """Yield lines on the operators of a name, from the texts of the graphs between passes.

    Raises:
        BoltgenError: there is no such operator; the message has similar names.
    """
    regions = {each.region: each for each in partitioned.placements if each.region}
    asked = [each for each in regions.values() if _is_region(each, operator)]
    if asked:
        for each in asked:
            yield from _region(each)
        operators = dict.fromkeys(name for each in asked for name in each.operator.split(" + "))
    else:
        operators = {_plain(operator): None}
    known = _names(steps, partitioned)
    for name in operators:
        if name not in known:
            raise BoltgenError(_unknown(operator, known))
        yield from _passes(steps, partitioned.fired, name)
        yield from _chosen(partitioned, name)
        if not asked:
            within = [each for each in regions.values() if name in each.operator.split(" + ")]
            yield f"regions with {name}: {len(within)}"
            for each in within:
                yield from (f"  {line}" for line in _region(each))
        yield from _left(partitioned, name)


def _plain(operator: str) -> str:
    """Return the name of an operator as regions have it."""
    return operator.rpartition(".")[2]


def _is_region(placed: Placement, asked: str) -> bool:
    is_label = " + " in placed.operator and asked in {
        placed.operator,
        shown_label(placed.operator),
    }
    return asked == placed.region or is_label


def _names(steps: Steps, partitioned: Partitioned) -> set[str]:
    """Return the plain names of all operators in any graph."""
    lines = (line for each in steps.values() for step in each for line in step.text.splitlines())
    found = {_plain(name) for line in lines if (name := operator_of(line)) is not None}
    return (found - _NO_OPERATORS) | {
        _plain(each.operator) for each in partitioned.placements if each.region is None
    }


def _unknown(asked: str, known: set[str]) -> str:
    near = get_close_matches(asked, sorted(known), _MOST_NAMES) or sorted(known)[:_MOST_NAMES]
    return f"the model has no operator or region '{asked}': give a name such as {', '.join(near)}"


def _region(placed: Placement) -> Iterator[str]:
    shape = "x".join(map(str, placed.shape))
    note = f": {placed.reason}" if placed.reason else ""
    yield f"{placed.region} ({shown_label(placed.operator)}, {shape}){note}"


def _passes(steps: Steps, fired: Mapping[str, Counter[str]], name: str) -> Iterator[str]:
    """The passes that changed operators of a name, the lines that went and came, and the rules that
    fired in such a pass anywhere in the model.
    """
    yield f"passes that changed {name}:"
    is_changed = False
    for function, texts in steps.items():
        where = f" in {function}" if len(steps) > 1 else ""
        full = {
            each
            for step in texts
            for line in step.text.splitlines()
            if (each := operator_of(line)) is not None and _plain(each) == name
        }
        first = sum(_counts(texts[0].text, full).values()) if texts else 0
        yield f"  {IMPORTED}{where}: {counted(first, 'operator')}"
        for before, after in pairwise(texts):
            pairs = [changed(before.text, after.text, each) for each in sorted(full)]
            gone = sum((left for left, _ in pairs), Counter[str]())
            come = sum((right for _, right in pairs), Counter[str]())
            if gone or come:
                is_changed = True
                yield f"  {after.name}{where}: {gone.total()} went, {come.total()} came"
                yield from _shown("-", gone)
                yield from _shown("+", come)
                for rule, count in fired.get(after.name, Counter[str]()).items():
                    yield f"    rule '{rule}' fired {counted(count, 'time')}"
    if not is_changed:
        yield "  none"


def _chosen(partitioned: Partitioned, name: str) -> Iterator[str]:
    """Yield what passes chose for operators of a name, with the times or the rule that decided."""
    chosen = Counter(
        (pass_name, each.is_rewritten, tuple(map(str, each.shape or ())), each.reason)
        for pass_name, each in partitioned.choices
        if name in map(_plain, each.operators)
    )
    if chosen:
        yield f"choices about {name}:"
    for (pass_name, is_rewritten, extents, reason), count in chosen.items():
        verb = "rewrote" if is_rewritten else "left"
        yield f"  {pass_name} {verb} {count} x {'x'.join(extents)}: {reason}"


def _counts(text: str, names: set[str]) -> Counter[str]:
    found = (operator_of(line) for line in text.splitlines())
    return Counter(each for each in found if each in names)


def _shown(mark: str, lines: Counter[str]) -> Iterator[str]:
    for line, count in lines.most_common(_MOST_LINES):
        yield f"    {mark} {f'{count} x ' if count > 1 else ''}{line}"
    if len(lines) > _MOST_LINES:
        yield f"    {mark} and {len(lines) - _MOST_LINES} more"


def _left(partitioned: Partitioned, name: str) -> Iterator[str]:
    """Yield the operators of a name that TVM computes, with the reasons."""
    placed = [
        each
        for each in partitioned.placements
        if each.region is None and _plain(each.operator) == name
    ]
    yield f"{name} that TVM computes: {len(placed)}"
    if not placed:
        return
    refused = Counter(
        (each.pass_name, tuple(map(str, each.shape or ())), each.reason)
        for each in partitioned.refusals
        if _plain(each.operator) == name
    )
    of_passes = {reason for _, _, reason in refused}
    for (shape, reason), count in Counter((each.shape, each.reason) for each in placed).items():
        why_tvm = "" if reason in of_passes else f": {reason}"  # else the pass's line has it
        yield f"  {count} x {'x'.join(map(str, shape))}{why_tvm}"
    for (pass_name, extents, reason), count in refused.items():
        yield f"  {pass_name} refused {count} x {'x'.join(extents)}: {reason}"
