"""The difference between two texts of a graph; it ignores the new numbers of equal values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

_VALUE = re.compile(r"\bv\d+\b")
_OPERATOR = re.compile(r"\s*v\d+: .* = ([\w.]+|'[^']*')\(")
_CONTEXT = 1
_GAP = "..."


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a difference: `mark` is "-" before, "+" after, and " " for a line of both."""

    mark: str
    text: str


def operator_of(line: str) -> str | None:
    """Return the operator of a line of a graph's text, or None if the line has none."""
    found = _OPERATOR.match(line)
    return found[1].strip("'") if found else None


def difference(before: str, after: str) -> tuple[Line, ...]:
    """Return the lines that changed, each run of them with a line of both before and behind it."""
    left, right = before.splitlines(), after.splitlines()
    return tuple(_lines(left, right, _blocks(left, right)))


def changed(before: str, after: str, operator: str) -> tuple[Counter[str], Counter[str]]:
    """Return the lines of one operator that went, and that came, without the numbers of values."""
    left, right = (
        Counter(_unnumbered(line) for line in text.splitlines() if operator_of(line) == operator)
        for text in (before, after)
    )
    return left - right, right - left


def _unnumbered(line: str) -> str:
    return _VALUE.sub("v", line.strip())


def _blocks(left: list[str], right: list[str]) -> list[tuple[str, int, int, int, int]]:
    old, new = ([_unnumbered(line) for line in lines] for lines in (left, right))
    return list[tuple[str, int, int, int, int]](SequenceMatcher(None, old, new).get_opcodes())


def _lines(
    left: list[str], right: list[str], blocks: list[tuple[str, int, int, int, int]]
) -> Iterator[Line]:
    for place, (kind, begin, end, new_begin, new_end) in enumerate(blocks):
        if kind != "equal":
            yield from (Line("-", line) for line in left[begin:end])
            yield from (Line("+", line) for line in right[new_begin:new_end])
            continue
        head = _CONTEXT if place > 0 else 0
        tail = _CONTEXT if place < len(blocks) - 1 else 0
        same = right[new_begin:new_end]
        if len(same) <= head + tail:
            yield from (Line(" ", line) for line in same)
            continue
        yield from (Line(" ", line) for line in same[:head])
        yield Line(" ", _GAP)
        yield from (Line(" ", line) for line in same[len(same) - tail :])
