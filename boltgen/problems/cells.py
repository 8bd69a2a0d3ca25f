"""The sizes of a symbolic workload in cells, for each of which one kernel and launch are chosen.

A cell is the workload itself with a part of its symbols' ranges; its kernel is chosen for its
greatest sizes. Extents grow by a factor from cell to cell, and faster with several symbols, so that
there are never many to choose for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.extent import Dim, Symbol
from boltgen.problems.workload import Workload

# A region has no more cells, and the cells of one symbol grow by this factor at least. Steps are
# multiples of a power of two, this part of a size at least, by the number of symbols. Choices, by
# `benchmarks.dynamic_shapes`.
_MOST_CELLS = 25
_FINEST = 2**0.5
_STEPS = {1: 32, 2: 4}
# The rows of the smallest tile: fewer all take the same time.
_LEAST = {"m": 16}
# The number of rows to gather from, or in a slice, decides almost nothing: its range stays whole.
_WHOLE = frozenset({"a_rows", "slice_rows"})


def localised(workload: Workload) -> tuple[Workload, dict[Dim, Dim]]:
    """Return `workload` with a symbol of its own for each symbolic extent, and each extent's
    symbol.

    A kernel does not know that its M is a batch times a sequence. The symbol has the name of the
    problem's field, and the range of the extent.
    """
    made: dict[Dim, Dim] = {}
    names: set[str] = set()
    for layer in workload.layers:
        problem: Any = layer.problem
        for each in fields(problem):
            extent = getattr(problem, each.name)
            if not isinstance(extent, Dim) or extent in made:
                continue
            name = each.name if each.name not in names else f"{each.name}_{len(names)}"
            names.add(name)
            low, high = extent.bounds
            made[extent] = Dim({(Symbol(name, low, high),): 1})
    return workload.resized(lambda extent: made[extent]), made


def cells(workload: Workload) -> tuple[Workload, ...]:
    """Return the cells of `workload`, smaller sizes first; the workload itself if all sizes are
    known.
    """
    symbols = workload.symbols
    return tuple(_product(workload, [_parts(each, _divided(symbols)) for each in symbols]))


def steps(workload: Workload) -> Iterator[Workload]:
    """Yield small cells of a workload, each in one of its `cells`; its `cells` if symbols are many.

    They end where tiles do: a kernel takes the same time for all sizes that fill as many tiles.
    """
    symbols = workload.symbols
    part = _STEPS.get(_divided(symbols))
    if part is None:
        return iter(cells(workload))
    return _product(workload, [_steps(each, _divided(symbols), part) for each in symbols])


def joined(left: Workload, right: Workload) -> Workload | None:
    """Join two neighbouring cells; None if they differ in more than the last symbol."""
    low, high = left.symbols, right.symbols
    if low[:-1] != high[:-1] or low[-1].high + 1 != high[-1].low:
        return None
    parts = [*low[:-1], replace(high[-1], low=low[-1].low)]
    return _narrowed(right, dict(zip(high, parts, strict=True)))


def representative(cell: Workload) -> Workload:
    """Return the sizes for which a cell's kernel is chosen: its greatest with all's alignment.

    Raises:
        InvalidProblemError: sizes near the greatest are all aligned otherwise.
    """
    symbols = cell.symbols
    wanted = _alignments(cell)
    for less in range(VECTOR_BYTES):
        found = cell.at({symbol: max(symbol.high - less, symbol.low) for symbol in symbols})
        if _alignments(found) == wanted:
            return found
    raise InvalidProblemError(f"no sizes of {cell.describe()} are aligned as all of them are")


def _alignments(workload: Workload) -> list[tuple[int, int, int]]:
    problems = (layer.problem for layer in workload.layers)
    return [(each.alignment_a, each.alignment_b, each.alignment_d) for each in problems]


def _product(workload: Workload, parts: Sequence[Sequence[Symbol]]) -> Iterator[Workload]:
    """The workload in each combination of its symbols' parts."""
    for chosen in itertools.product(*parts):
        yield _narrowed(workload, dict(zip(workload.symbols, chosen, strict=True)))


def _divided(symbols: Sequence[Symbol]) -> int:
    """Count the `symbols` that have ranges that are divided."""
    return sum(symbol.name not in _WHOLE for symbol in symbols)


def _parts(symbol: Symbol, symbols: int) -> tuple[Symbol, ...]:
    """The range of a symbol in parts, as few as so many symbols demand."""
    if symbol.name in _WHOLE:
        return (symbol,)
    most, factor = int(_MOST_CELLS ** (1 / symbols)), _FINEST
    while len(_ends(symbol, factor)) > most:
        factor *= _FINEST
    return tuple(_between(symbol, _ends(symbol, factor)))


def _steps(symbol: Symbol, symbols: int, part: int) -> tuple[Symbol, ...]:
    """The same in steps."""
    if symbol.name in _WHOLE:
        return (symbol,)
    ends = {each.high for each in _parts(symbol, symbols)}
    end = 0
    while end < symbol.high:
        step = max(_LEAST.get(symbol.name, 1), 1 << (max(end // part, 1) - 1).bit_length())
        end = (end // step + 1) * step
        if symbol.low <= end < symbol.high:
            ends.add(end)
    return tuple(_between(symbol, sorted(ends)))


def _between(symbol: Symbol, ends: list[int]) -> Iterator[Symbol]:
    low = symbol.low
    for high in ends:
        yield replace(symbol, low=low, high=high)
        low = high + 1


def _ends(symbol: Symbol, factor: float) -> list[int]:
    """The greatest value of each part, each greater by `factor`, and the greatest of all."""
    ends = [_LEAST.get(symbol.name, 1)]
    while ends[-1] < symbol.high:
        ends.append(max(round(ends[-1] * factor), ends[-1] + 1))
    return [end for end in ends if symbol.low <= end < symbol.high] + [symbol.high]


def _narrowed(workload: Workload, parts: dict[Symbol, Symbol]) -> Workload:
    return workload.at({symbol: Dim({(part,): 1}) for symbol, part in parts.items()})
