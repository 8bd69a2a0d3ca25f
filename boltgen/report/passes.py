"""Arrow: from the texts of graphs between passes to the differences that a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from boltgen.graph.difference import Line, difference
from boltgen.intake.numerals import counted

# The most lines of a pass on a page; the trace has all lines.
_MOST_LINES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class PassChange:
    """A pass that changed a graph, with the beginning of the difference.

    `counts` counts removed and added lines, `left_out` the lines that are not shown.
    """

    name: str
    effect: str
    counts: str
    lines: tuple[Line, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChanges:
    """A function of a model, and the passes that changed its graph, in order."""

    function: str
    changes: tuple[PassChange, ...]


def changes_of(
    trace: Mapping[str, Iterable[tuple[str, str]]], effects: Mapping[str, str]
) -> tuple[FunctionChanges, ...]:
    """Return the changes of each function in a trace, which has pairs of pass and text after it.

    `effects` maps the name of a pass to its effect.
    """
    return tuple(
        FunctionChanges(
            function=function,
            changes=tuple(
                _change(name, effects.get(name, ""), difference(before, after))
                for (_, before), (name, after) in pairwise(texts)
            ),
        )
        for function, texts in trace.items()
    )


def _change(name: str, effect: str, lines: tuple[Line, ...]) -> PassChange:
    gone, come = (sum(line.mark == mark for line in lines) for mark in "-+")
    return PassChange(
        name=name,
        effect=effect,
        counts=f"{counted(gone, 'line')} went, {come} came",
        lines=lines[:_MOST_LINES],
        left_out=max(0, len(lines) - _MOST_LINES),
    )
