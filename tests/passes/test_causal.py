"""Which masks of scores are known to be causal, and which stay masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.key_masks import HIDDEN as KEY_HIDDEN
from boltgen.passes.masks import where_as_minimum
from boltgen.passes.outline import Symbols
from boltgen.problems.workload import Workload
from tests.passes.carved import carve
from tests.passes.differential import checked

masks_as_bounds = checked(where_as_minimum.masks_as_bounds)

HEADS, ROWS, HEAD = 3, 20, 16
F16 = "float16"
SEEN = np.tri(ROWS, dtype=bool)
HIDDEN = np.float16(-np.inf)
OPEN = symbolic(Symbol("n", 1, 64))


class Builder(GraphBuilder):
    """Grows attention in the neutral graph, of ROWS rows and keys, or of an open number."""

    def __init__(self, rows: int = ROWS, keys: int | None = None) -> None:
        super().__init__()
        self.rows, self.keys = rows, keys or rows

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F16))

    def scores(self) -> int:
        q, k = self.input(HEADS, self.rows, HEAD), self.input(HEADS, HEAD, self.keys)
        scores = self.operator("matmul", (q, k), (HEADS, self.rows, self.keys), F16)
        return self.elementwise("multiply", scores, self.number(0.25))

    def number(self, value: float, dtype: str = F16) -> int:
        return self.constant(np.array(value, dtype))

    def places(self, *shape: int, begin: int = 0) -> int:
        count = self.rows if shape[-1] == 1 else self.keys
        made = self.operator("arange", (), (count,), "int64", begin=begin, step=1)
        return self.operator("reshape", (made,), shape, "int64")

    def compare(self, op: str, lhs: int, rhs: int) -> int:
        return self.operator(op, (lhs, rhs), (self.rows, self.keys), "bool")

    def where(self, seen: int, shown: int, hidden: int, shape: tuple[int, ...] = ()) -> int:
        return self.operator("where", (seen, shown, hidden), shape or self.shape(seen), F16)


def carved(builder: Builder, scores: int) -> Workload:
    weights = builder.operator("nn.softmax", (scores,), builder.shape(scores), F16, axis=-1)
    v = builder.input(HEADS, builder.keys, HEAD)
    mixed = builder.operator("matmul", (weights, v), (HEADS, builder.rows, HEAD), F16)
    _, (region,) = carve(masks_as_bounds(builder.graph(mixed)), Symbols(()))
    return region.region.workload


def _known(b: Builder) -> int:
    mask = np.where(SEEN, 0, HIDDEN).astype(np.float16)
    return b.elementwise("add", b.scores(), b.constant(mask))


def _known_for_each_head(b: Builder) -> int:
    mask = np.where(SEEN, 0, np.float16(-32768)).astype(np.float16)
    return b.elementwise("add", b.scores(), b.constant(mask.reshape(1, ROWS, ROWS)))


def _chosen(b: Builder) -> int:
    return b.where(b.constant(SEEN), b.scores(), b.number(-65504.0), (HEADS, ROWS, ROWS))


def _filled(b: Builder) -> int:
    return b.where(b.constant(~SEEN), b.number(-65504.0), b.scores(), (HEADS, ROWS, ROWS))


def _triangle(b: Builder) -> int:
    filled = b.operator("broadcast_to", (b.number(-np.inf),), (b.rows, b.keys), F16)
    mask = b.operator("triu", (filled,), (b.rows, b.keys), F16, k=1)
    return b.elementwise("add", b.scores(), mask)


def _compared(op: str, *, rows_first: bool, holds: bool) -> Callable[[Builder], int]:
    def build(b: Builder) -> int:
        places = b.places(b.rows, 1), b.places(1, b.keys)
        seen = b.compare(op, *(places if rows_first else reversed(places)))
        if not holds:
            seen = b.operator("logical_not", (seen,), b.shape(seen), "bool")
        mask = b.where(seen, b.number(0.0), b.number(-32768.0))
        return b.elementwise("add", b.scores(), mask)

    return build


def _triangle_of_numbers(b: Builder) -> int:
    """Any number behind the diagonal hides."""
    filled = np.full((ROWS, ROWS), -65504.0, np.float16)
    filled[0, 1] = -np.inf
    mask = b.operator("triu", (b.constant(filled),), (ROWS, ROWS), F16, k=1)
    return b.elementwise("add", b.scores(), mask)


MADE = {
    "greater_equal": _compared("greater_equal", rows_first=True, holds=True),
    "less_equal": _compared("less_equal", rows_first=False, holds=True),
    "greater": _compared("greater", rows_first=False, holds=False),
    "less": _compared("less", rows_first=True, holds=False),
    "triangle": _triangle,
}
KNOWN = {
    "known": _known,
    "known_for_each_head": _known_for_each_head,
    "chosen": _chosen,
    "filled": _filled,
    "triangle_of_numbers": _triangle_of_numbers,
}


@pytest.mark.parametrize("build", [*KNOWN.values(), *MADE.values()], ids=[*KNOWN, *MADE])
def test_causal_masks_are_not_loaded(build: Callable[[Builder], int]) -> None:
    b = Builder()
    scores, output = carved(b, build(b)).layers
    assert scores.epilogue.describe() == "multiply(acc, 0.25)"
    assert output.prologue.describe() == "causal softmax(acc)"


@pytest.mark.parametrize("name", MADE)
def test_so_are_those_of_an_open_number_of_rows(name: str) -> None:
    b = Builder(OPEN)
    scores, output = carved(b, MADE[name](b)).layers
    assert not scores.loads
    assert output.prologue.is_causal


def test_another_mask_beside_it_stays() -> None:
    b = Builder()
    padding = b.input(1, 1, ROWS)
    scores, output = carved(b, b.elementwise("add", _known(b), padding)).layers
    assert scores.epilogue.describe() == "add(multiply(acc, 0.25), row0 that hides keys)"
    assert output.prologue.is_causal


WINDOW = 6
LOCAL = SEEN & ~np.tri(ROWS, k=-WINDOW, dtype=bool)


def _known_window(b: Builder) -> int:
    mask = np.where(LOCAL, 0, HIDDEN).astype(np.float16)
    return b.elementwise("add", b.scores(), b.constant(mask))


def _chosen_window(b: Builder) -> int:
    mask = b.where(b.constant(LOCAL), b.number(0.0), b.number(-65504.0))
    return b.elementwise("add", b.scores(), mask)


def _compared_window(
    *, reach_first: bool, window: float = WINDOW, both: str = "logical_and"
) -> Callable[[Builder], int]:
    """As Mistral's mask in transformers."""

    def build(b: Builder) -> int:
        rows, keys = b.places(b.rows, 1), b.places(1, b.rows)
        end = b.operator("subtract", (rows, b.number(window, "int64")), (b.rows, 1), "int64")
        parts = [b.compare("less_equal", keys, rows), b.compare("greater", keys, end)]
        seen = b.operator(
            both,
            tuple(reversed(parts) if reach_first else parts),
            (b.rows, b.rows),
            "bool",
        )
        return b.elementwise("add", b.scores(), b.where(seen, b.number(0.0), b.number(-65504.0)))

    return build


WINDOWS = {
    "known": _known_window,
    "chosen": _chosen_window,
    "compared": _compared_window(reach_first=False),
    "reach first": _compared_window(reach_first=True),
    "bits": _compared_window(reach_first=False, both="bitwise_and"),
}


@pytest.mark.parametrize("build", WINDOWS.values(), ids=WINDOWS)
def test_masks_of_sliding_windows_are_not_loaded(build: Callable[[Builder], int]) -> None:
    b = Builder()
    scores, output = carved(b, build(b)).layers
    assert scores.epilogue.describe() == "multiply(acc, 0.25)"
    assert output.prologue.describe() == f"causal softmax of {WINDOW}(acc)"


def test_so_are_those_of_a_window_over_an_open_number_of_rows() -> None:
    b = Builder(OPEN)
    scores, output = carved(b, _compared_window(reach_first=False)(b)).layers
    assert not scores.loads
    assert output.prologue.window == WINDOW


def _changed(mask: np.ndarray, row: int, key: int, value: float) -> Callable[[Builder], int]:
    numbers = mask.copy()
    numbers[row, key] = value
    return lambda b: b.elementwise("add", b.scores(), b.constant(numbers))


def _shown_again(b: Builder) -> int:
    return b.elementwise("multiply", _known(b), b.input(1, ROWS, ROWS))


def _from_one(b: Builder) -> int:
    seen = b.compare("greater_equal", b.places(ROWS, 1, begin=1), b.places(1, ROWS))
    mask = b.where(seen, b.number(0.0), b.number(-32768.0))
    return b.elementwise("add", b.scores(), mask)


ADDED = np.where(SEEN, 0, HIDDEN).astype(np.float16)
OTHERS = {
    "one more": _changed(ADDED, 3, 4, 0.0),
    "one less": _changed(ADDED, 3, 3, -np.inf),
    "a bias": _changed(ADDED, 3, 1, 0.5),
    "weakly": _changed(ADDED, 3, 9, -100.0),
    "strictly": _compared("greater", rows_first=True, holds=True),
    "the other way": _compared("less_equal", rows_first=True, holds=True),
    "from one": _from_one,
    "a gap in a window": _changed(np.where(LOCAL, 0, HIDDEN).astype(np.float16), 9, 8, -np.inf),
    "no window": _compared_window(reach_first=False, window=0),
    "shown again": _shown_again,
}


@pytest.mark.parametrize("build", OTHERS.values(), ids=OTHERS)
def test_other_masks_stay(build: Callable[[Builder], int]) -> None:
    b = Builder()
    scores, output = carved(b, build(b)).layers
    assert len(scores.loads) == 1 + (build is _shown_again)
    assert not output.prologue.is_causal


def _mask(
    shown: float, hidden: float, how: str = "add", **after: float
) -> Callable[[Builder], int]:
    """A constant mask, perhaps clipped after."""

    def build(b: Builder) -> int:
        mask = b.constant(np.where(SEEN, shown, hidden).astype(np.float16))
        made = b.elementwise(how, b.scores(), mask)
        return b.elementwise("clip", made, **after) if after else made

    return build


def _made(shown: float, hidden: float, how: str = "add") -> Callable[[Builder], int]:
    """A mask that the model computes of places."""

    def build(b: Builder) -> int:
        seen = b.compare("greater_equal", b.places(ROWS, 1), b.places(1, ROWS))
        mask = b.where(seen, b.number(shown), b.number(hidden))
        return b.elementwise(how, b.scores(), mask)

    return build


def _triangle_of(number: float, how: str = "add") -> Callable[[Builder], int]:
    def build(b: Builder) -> int:
        filled = b.operator("broadcast_to", (b.number(number),), (ROWS, ROWS), F16)
        mask = b.operator("triu", (filled,), (ROWS, ROWS), F16, k=1)
        return b.elementwise(how, b.scores(), mask)

    return build


def _twice(b: Builder) -> int:
    """Whose mask two operators load."""
    mask = b.constant(ADDED)
    return b.elementwise("add", b.elementwise("add", b.scores(), mask), mask)


def _doubled(b: Builder) -> int:
    masked = _known(b)
    return b.elementwise("add", masked, masked)


MOST, LEAST = 65504.0, float(KEY_HIDDEN)
LESS = float(np.nextafter(np.float16(LEAST), np.float16(0)))
NUMBERS = {
    "as PyTorch's": (_mask(0.0, LEAST), True),
    "not as low": (_mask(0.0, LESS), False),
    "a bound": (_mask(np.inf, LEAST, "minimum"), True),
    "the largest": (_mask(MOST, LEAST, "minimum"), True),
    "a low bound": (_mask(MOST - 32.0, LEAST, "minimum"), False),
    "zeros as a bound": (_mask(0.0, LEAST, "minimum"), False),
    "infinities that are added": (_mask(np.inf, LEAST), False),
    "made": (_made(0.0, LEAST), True),
    "made, not as low": (_made(0.0, LESS), False),
    "made, shifted": (_made(1.0, LEAST), False),
    "a bound that is made": (_made(MOST, LEAST, "minimum"), True),
    "a low bound that is made": (_made(MOST - 32.0, LEAST, "minimum"), False),
    "a triangle": (_triangle_of(LEAST), True),
    "a triangle, not as low": (_triangle_of(LESS), False),
    "a triangle as a bound": (_triangle_of(LEAST, "minimum"), False),
    "clipped": (_mask(0.0, -np.inf, low=-MOST, high=MOST), True),
    "clipped where it hides": (_mask(0.0, -np.inf, low=LEAST, high=MOST), True),
    "raised": (_mask(0.0, -np.inf, low=LESS, high=MOST), False),
    "cut off": (_mask(0.0, -np.inf, low=-MOST, high=MOST - 32.0), False),
    "an activation after": (lambda b: b.elementwise("tanh", _known(b)), False),
    "doubled": (_doubled, False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_causal_mask_hide(name: str) -> None:
    build, is_causal = NUMBERS[name]
    b = Builder()
    scores, output = carved(b, build(b)).layers
    assert output.prologue.is_causal == is_causal
    assert len(scores.loads) == (not is_causal)


def test_a_mask_that_two_operators_load_stays() -> None:
    b = Builder()
    scores, output = carved(b, _twice(b)).layers
    assert not output.prologue.is_causal
    assert len(scores.loads) == 1


@pytest.mark.parametrize(
    ("window", "distance", "reads", "found"),
    [
        (1, "subtract", "greater", 1),
        (1, "subtract", "less", 1),
        (6, "subtract", "less", 6),
        (-1, "subtract", "greater", None),
        (6, "add", "greater", None),
        (6, "other rows", "greater", None),
        (6, "other keys", "greater", None),
    ],
)
def test_which_windows_are_made_of_places(
    window: int, distance: str, reads: str, found: int | None
) -> None:
    """A key is seen if it is no later than the row, and later than the row less the window."""
    b = Builder()
    rows, keys = b.places(ROWS, 1), b.places(1, ROWS)
    number = b.number(window, "int64")
    name = "add" if distance == "add" else "subtract"
    before = b.places(ROWS, 1, begin=1) if distance == "other rows" else rows
    end = b.operator(name, (before, number), (ROWS, 1), "int64")
    key = b.places(1, ROWS, begin=1) if distance == "other keys" else keys
    later = b.compare(reads, *((key, end) if reads == "greater" else (end, key)))
    both = (b.compare("less_equal", keys, rows), later)
    seen = b.operator("logical_and", both, (ROWS, ROWS), "bool")
    mask = b.where(seen, b.number(0.0), b.number(LEAST))
    scores, output = carved(b, b.elementwise("add", b.scores(), mask)).layers
    assert (output.prologue.window if output.prologue.is_causal else None) == found
    assert len(scores.loads) == (found is None)


def _more_keys(b: Builder, diagonal: int, window: int = 99) -> int:
    shape = (ROWS, b.keys)
    seen = np.tri(*shape, diagonal, dtype=bool) & ~np.tri(*shape, diagonal - window, dtype=bool)
    mask: Any = np.where(seen, 0, HIDDEN).astype(np.float16)
    return b.elementwise("add", b.scores(), b.constant(mask))


@pytest.mark.parametrize("window", [0, 5])
def test_of_more_keys_than_rows_the_last_ones_meet(window: int) -> None:
    b = Builder(ROWS, 2 * ROWS)
    scores, output = carved(b, _more_keys(b, ROWS, window or 99)).layers
    assert not scores.loads
    assert (output.prologue.is_causal, output.prologue.window) == (True, window)


@pytest.mark.parametrize("diagonal", [0, ROWS - 1, ROWS + 1])
def test_of_more_keys_than_rows_other_masks_stay(diagonal: int) -> None:
    b = Builder(ROWS, 2 * ROWS)
    scores, output = carved(b, _more_keys(b, diagonal)).layers
    assert len(scores.loads) == 1
    assert not output.prologue.is_causal


def test_of_fewer_keys_than_rows_masks_stay() -> None:
    b = Builder(ROWS, ROWS - 2)
    scores, output = carved(b, _more_keys(b, -2)).layers
    assert len(scores.loads) == 1
    assert not output.prologue.is_causal


@pytest.mark.parametrize("name", MADE)
def test_places_of_more_keys_than_rows_do_not_meet(name: str) -> None:
    b = Builder(ROWS, 2 * ROWS)
    scores, output = carved(b, MADE[name](b)).layers
    assert len(scores.loads) == 1
    assert not output.prologue.is_causal
