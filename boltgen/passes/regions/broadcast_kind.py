"""Classify how elementwise operands span a product's output. For both IRs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
    if len(shape) > len(out):
        return None
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    goal = tuple(out)
    if full[-1] == goal[-1] and prod(full[:-1]) == 1:
        return LoadKind.ROW, False
    if full == goal:
        return LoadKind.TENSOR, batched
    inner = 2 if batched else len(goal)
    is_shared = prod(full[:-inner]) == 1 if batched else True
    if is_shared and full[-inner:] == goal[-inner:]:
        return LoadKind.TENSOR, False
    if is_shared and full[-1] == 1 and full[-inner:-1] == goal[-inner:-1]:
        return LoadKind.COLUMN, False
    return None


def slice_span(shape: Sequence[int], out: Sequence[int]) -> tuple[LoadKind, int] | None:
    """Return how an operand of `shape` spans the images or sequences of `out`, (..., N), with one
    row for each of them, or one for each position in all of them; and the rows of a slice.
    """
    if len(shape) > len(out):
        return None
    full, goal = (1,) * (len(out) - len(shape)) + tuple(shape), tuple(out)
    if full[-1] != goal[-1]:
        return None
    for place in range(1, len(goal) - 1):
        rows = prod(goal[place:-1])
        if prod(full[place:-1]) == 1 and full[:place] == goal[:place]:
            return LoadKind.SLICE_ROW, rows
        if prod(full[:place]) == 1 and full[place:] == goal[place:]:
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
    if not 2 < len(shape) <= len(out):
        return None
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    goal = tuple(out)
    kinds = {
        (1, goal[-1]): LoadKind.ROW,
        (goal[-2], 1): LoadKind.COLUMN,
        goal[-2:]: LoadKind.TENSOR,
    }
    kind = kinds.get(full[-2:])
    if kind is None:
        return None
    given, batch = full[:-2], goal[:-2]
    if given == batch:
        return kind, True, None
    for place in range(1, len(batch)):
        heads = prod(batch[place:])
        if given == batch[:place] + (1,) * len(batch[place:]):
            by = Sharing.HEADS
        elif given == (1,) * place + batch[place:]:
            by = Sharing.SEQUENCES
        else:
            continue
        return None if isinstance(heads, Dim) else (kind, False, Shared(by=by, heads=heads))
    return None
