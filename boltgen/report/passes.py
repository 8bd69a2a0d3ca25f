"""Arrow: the texts of a model's graphs between passes to the differences that a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from boltgen.graph.difference import Line, difference
from boltgen.intake.numerals import counted

# A page shows so many lines of a pass; the trace has them all.
_MOST_LINES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class PassChange:
    """A pass that changed a graph: `counts` says how many lines went and came; `lines` are the
    first of the difference, and `left_out` counts the others.
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
    """Return the changes of each function of a trace: pairs of a pass and the text after it.

    `effects` has by the name of a pass what the pass does.
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
