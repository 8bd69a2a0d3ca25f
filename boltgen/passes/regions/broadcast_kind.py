"""Classify how elementwise operands span a product's output. For both IRs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from boltgen.graph.view import Spread
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import Dim
from boltgen.problems.region import Shared, Sharing


def span(
    shape: Sequence[int], out: Sequence[int], *, batched: bool
) -> tuple[LoadKind, bool] | None:
    """Return how an operand of `shape` spans an output of shape `out`, and whether it has one slice
    per product; None if a kernel cannot load it.

    `out` is (..., M, N) of a `batched` product, else (..., N) with M the product of the rest.
    """
    x = Spread.of(shape, out)
    if x is None:
        return None
    columns = len(out) - 1
    if x.keeps(columns) and x.repeats(0, columns):
        return LoadKind.ROW, False
    if x.keeps():
        return LoadKind.TENSOR, batched
    inner = len(out) - 2 if batched else 0
    if x.repeats(0, inner) and x.keeps(inner):
        return LoadKind.TENSOR, False
    if x.repeats(0, inner) and x.keeps(inner, columns) and x.repeats(columns):
        return LoadKind.COLUMN, False
    return None


def slice_span(shape: Sequence[int], out: Sequence[int]) -> tuple[LoadKind, int] | None:
    """Return how an operand of `shape` spans the images or sequences of `out`, (..., N), with one
    row for each of them, or one for each position in all of them; and the rows of a slice.
    """
    x, columns = Spread.of(shape, out), len(out) - 1
    if x is None or not x.keeps(columns):
        return None
    for place in range(1, columns):
        rows = prod(out[place:columns])
        if x.keeps(0, place) and x.repeats(place, columns):
            return LoadKind.SLICE_ROW, rows
        if x.repeats(0, place) and x.keeps(place):
            return LoadKind.POSITION_ROW, rows
    return None


def shared_span(
    shape: Sequence[int], out: Sequence[int]
) -> tuple[LoadKind, bool, Shared | None] | None:
    """Return how an operand of `shape` spans the scores of attention, `out`, (sequences, heads, M,
    N).

    Besides what `span` finds, the heads of a sequence may read one slice of it, or the same head of
    all sequences. The result is the result of `span`, and who shares.
    """
    if (found := span(shape, out, batched=True)) is not None:
        return (*found, None)
    x, rows = Spread.of(shape, out), len(out) - 2
    if x is None or len(shape) < 3:
        return None
    kind = _kind_of_matrix(x, rows)
    if kind is None or x.keeps(0, rows):
        return kind and (kind, True, None)
    for place in range(1, rows):
        heads = prod(out[place:rows])
        if x.keeps(0, place) and x.repeats(place, rows):
            by = Sharing.HEADS
        elif x.repeats(0, place) and x.keeps(place, rows):
            by = Sharing.SEQUENCES
        else:
            continue
        return None if isinstance(heads, Dim) else (kind, False, Shared(by=by, heads=heads))
    return None


def _kind_of_matrix(x: Spread, rows: int) -> LoadKind | None:
    """Return how an operand spans a matrix, the dimensions from `rows` on."""
    if x.keeps(rows):
        return LoadKind.TENSOR
    if x.repeats(rows, rows + 1) and x.keeps(rows + 1):
        return LoadKind.ROW
    return LoadKind.COLUMN if x.keeps(rows, rows + 1) and x.repeats(rows + 1) else None
