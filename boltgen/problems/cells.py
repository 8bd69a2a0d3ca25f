"""Divide the sizes of a symbolic workload into cells; each cell gets one kernel and launch.

A cell is the workload with narrower ranges of its symbols; its kernel is chosen for the greatest
sizes of the cell. Sizes grow from cell to cell by a factor, which is larger for several symbols, so
that the number of cells stays small.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import VECTOR_BYTES
from boltgen.ir.extent import Dim, Symbol
from boltgen.problems.problem import with_extents
from boltgen.problems.workload import Workload

# The most cells of a region, and the least factor from cell to cell of one symbol. `_STEPS`, by the
# number of symbols: a step is a power of two of at least this part of a size. All are choices,
# tuned with `benchmarks.dynamic_shapes`.
_MOST_CELLS = 25
_FINEST = 2**0.5
_STEPS = {1: 32, 2: 4}
# The rows of the smallest tile; fewer rows take the same time.
_LEAST = {"m": 16}
# The extents that hardly change the time: the rows to gather from, and the rows of a slice.
_WHOLE = frozenset({"a_rows", "slice_rows"})


def localised(workload: Workload) -> tuple[Workload, dict[Dim, Dim]]:
    """Return `workload` with one new symbol per symbolic extent, and the new symbol of each extent.

    A kernel does not know that its M is a batch times a sequence. The new symbol has the name of
    the problem's field and the range of the extent. Rows of a layer that follows a convolution are
    no extent of their own: they are made of the convolution's.
    """
    made: dict[Dim, Dim] = {}
    names: set[str] = set()
    derived: dict[Dim, int] = {}
    for layer in workload.layers:
        problem: Any = layer.problem
        for each in fields(problem):
            extent = getattr(problem, each.name)
            if not isinstance(extent, Dim) or extent in made or extent in derived:
                continue
            name = each.name if each.name not in names else f"{each.name}_{len(names)}"
            names.add(name)
            low, high = extent.bounds
            made[extent] = Dim({(Symbol(name, low, high),): 1})
        rows = problem.gemm.m if problem.has_b and not problem.is_matrix else 1
        if isinstance(rows, Dim):
            derived[rows] = with_extents(problem, lambda extent: made[extent]).gemm.m
    return workload.resized(lambda each: made[each] if each in made else derived[each]), made


def cells(workload: Workload) -> tuple[Workload, ...]:
    """Return the cells of `workload`, smaller sizes first; itself if all sizes are known."""
    symbols = workload.symbols
    return tuple(_product(workload, [_parts(each, _divided(symbols)) for each in symbols]))


def steps(workload: Workload) -> Iterator[Workload]:
    """Yield small cells of a workload, within its `cells`; `cells` for over two symbols.

    A small cell ends where a tile ends, because all sizes with the same number of tiles take the
    same time.
    """
    symbols = workload.symbols
    part = _STEPS.get(_divided(symbols))
    if part is None:
        return iter(cells(workload))
    return _product(workload, [_steps(each, _divided(symbols), part) for each in symbols])


def joined(left: Workload, right: Workload) -> Workload | None:
    """Join two neighbouring cells; return None if they differ in more than the last symbol."""
    low, high = left.symbols, right.symbols
    if low[:-1] != high[:-1] or low[-1].high + 1 != high[-1].low:
        return None
    parts = [*low[:-1], replace(high[-1], low=low[-1].low)]
    return _narrowed(right, dict(zip(high, parts, strict=True)))


def representative(cell: Workload) -> Workload:
    """Return the greatest sizes of a cell that have the alignment of all its sizes.

    Raises:
        InvalidProblemError: no sizes near the greatest have this alignment.
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
    """Yield the workload for each combination of its symbols' parts."""
    for chosen in itertools.product(*parts):
        yield _narrowed(workload, dict(zip(workload.symbols, chosen, strict=True)))


def _divided(symbols: Sequence[Symbol]) -> int:
    """Count the symbols whose ranges are divided."""
    return sum(symbol.name not in _WHOLE for symbol in symbols)


def _parts(symbol: Symbol, symbols: int) -> tuple[Symbol, ...]:
    """Divide the range of a symbol; `symbols` such ranges make at most `_MOST_CELLS` cells."""
    if symbol.name in _WHOLE:
        return (symbol,)
    most, factor = int(_MOST_CELLS ** (1 / symbols)), _FINEST
    while len(_ends(symbol, factor)) > most:
        factor *= _FINEST
    return tuple(_between(symbol, _ends(symbol, factor)))


def _steps(symbol: Symbol, symbols: int, part: int) -> tuple[Symbol, ...]:
    """Divide the range of a symbol into steps, each within one of its `_parts`."""
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
    """Return the greatest value of each part: values that grow by `factor`, then the symbol's."""
    ends = [_LEAST.get(symbol.name, 1)]
    while ends[-1] < symbol.high:
        ends.append(max(round(ends[-1] * factor), ends[-1] + 1))
    return [end for end in ends if symbol.low <= end < symbol.high] + [symbol.high]


def _narrowed(workload: Workload, parts: dict[Symbol, Symbol]) -> Workload:
    return workload.at({symbol: Dim({(part,): 1}) for symbol, part in parts.items()})
