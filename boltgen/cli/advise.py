"""The command `boltgen advise`: lists changes of a model that cost little and make it faster."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from boltgen.artifact.coverage import Coverage, coverage
from boltgen.cli.inspect import shown_label
from boltgen.cli.terminal.console import errors_for_people, out, say
from boltgen.cli.terminal.flags import DEFAULT_ARCH, Arch, Debug, Model, with_options
from boltgen.device.asked_arch import asked_arch
from boltgen.intake.numerals import counted
from boltgen.options import ModelOptions
from boltgen.pipeline import PipelineOptions
from boltgen.problems.workload import Layer
from boltgen.stored import own_compilers, stored_measurements
from boltgen.tuning.choice.advice import Advice, NamedLayer, advise
from boltgen.tvm_build.model import import_model, partition

_MOST_LINES, _WIDTH = 40, 80
# A change that gains a smaller share is not listed.
_LEAST_GAIN = 0.01


@with_options(ModelOptions, only=frozenset({"shapes", "frontend"}))
def advise_command(
    *, model: Model, arch: Arch = DEFAULT_ARCH, options: ModelOptions, debug: Debug = False
) -> None:
    """Show what keeps matmuls from kernels, and what to change.

    The share of the work that boltgen computes comes first, then the operators that TVM computes,
    with reason and remedy, then changes of layers that make them faster, such as channels that are
    a multiple of eight, with the times before and after. Layers have the names that `inspect`
    shows. Times are measured if a device has timed both, else predicted. Nothing is compiled.

    \b
    Example:
      boltgen advise repvgg_a0.onnx --arch sm_75
    """
    with errors_for_people(debug, interrupted="nothing was written"):
        given = advise_model(model, arch, options)
    for line in advice_lines(given, min(out.width, _WIDTH)):
        say(line, wrap=False)


def advice_lines(given: ModelAdvice, width: int = _WIDTH) -> list[str]:
    """Return the verdict, what TVM computes and the best changes, in at most 40 lines."""
    lines = _wrapped(given.coverage.headline(), width)
    total = given.coverage.total_flops
    rest = [
        _wrapped(
            f"{counted(each.count, 'product')} of {each.operator}, {each.flops / total:.1%} of the "
            f"work: {each.reason}",
            width,
            "  ",
        )
        for each in given.coverage.rest
    ]
    gains = sorted(
        (each for each in given.changes if each.cost <= -_LEAST_GAIN),
        key=lambda each: each.after_us - each.before_us,
    )
    changes = [_change_lines(each, width) for each in gains]
    if rest:
        lines.append("with TVM stay:")
        # At most half of the free lines, so that the changes have the rest.
        lines += _fitted(rest, len(lines) + (_MOST_LINES - len(lines)) // 2, len(lines))
    if changes:
        lines.append("changes of layers that make them faster:")
        lines += _fitted(changes, _MOST_LINES, len(lines))
    elif total:
        lines += _wrapped("no change of a layer's channels makes it faster", width)
    return lines


def _change_lines(advice: Advice, width: int) -> list[str]:
    problem = " ".join(advice.layer.layer.problem.short.split())
    times = f"{advice.before_us:.1f} to {advice.after_us:.1f} us, {-advice.cost:.0%} less"
    said = f"{advice.change.value}, {advice.what}: {times} ({advice.origin})"
    return [
        *_wrapped(f"{shown_label(advice.layer.name)}, {problem}", width, "  "),
        *_wrapped(said, width, "    "),
    ]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break text into lines between words."""
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
    )


def _fitted(blocks: Sequence[Sequence[str]], most: int, used: int) -> list[str]:
    """Return the blocks that fit into `most` lines after `used`, and a line on the others."""
    lines: list[str] = []
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        if used + len(lines) + len(block) + (not is_last) > most:
            return [*lines, f"  and {len(blocks) - number} more"]
        lines += block
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdvice:
    """The share of the work, reasons for operators that TVM computes, and cheap changes."""

    coverage: Coverage
    changes: tuple[Advice, ...]


def advise_model(model: object, arch: str, options: ModelOptions) -> ModelAdvice:
    """Find what keeps `model`'s anchors from kernels, and cheap changes of layers on `arch`.

    Times are measured if both before and after a change are known, else predicted. Layers with the
    same problem are listed once, by the name of the first. Layers of attention are not listed: they
    stay one kernel with any change.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
    """
    row = asked_arch(arch)
    pipeline = PipelineOptions(**{**options.of_model, "fuse": False})
    partitioned = import_model(model, pipeline)
    partition(partitioned, row.name, pipeline)
    layers: dict[Layer, NamedLayer] = {}
    for region in partitioned.regions:
        if region.workload.is_fused:
            continue
        named = NamedLayer(name=region.label, layer=region.workload.single)
        layers.setdefault(named.layer, named)
    tools = own_compilers(pipeline.settings)
    with stored_measurements(row, tools, pipeline.settings) as measurements:
        changes = advise(tuple(layers.values()), row, measurements)
    return ModelAdvice(coverage=coverage(partitioned.partitioned.placements), changes=changes)
