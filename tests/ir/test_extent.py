"""Symbolic extents: arithmetic, comparisons over ranges, and what they refuse to be."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from boltgen.errors import InvalidProblemError
from boltgen.ir.extent import (
    Dim,
    Symbol,
    UndecidedExtentError,
    broadcast,
    divides,
    greatest,
    symbolic,
    typical,
)

BATCH, LENGTH = Symbol("batch", 1, 64), Symbol("length", 16, 512)
B, S = symbolic(BATCH), symbolic(LENGTH)


def _bounds(extent: int) -> tuple[int, int]:
    assert isinstance(extent, Dim)
    return extent.bounds


def test_sums_of_products_are_equal_however_they_were_written() -> None:
    assert B * S * 3 == 3 * (S * B)
    assert hash(B * S) == hash(S * B)
    assert (B + S) * 2 == 2 * S + B * 2
    assert B != S
    assert B - B == 0
    assert (B * S) // S == B
    assert (8 * B) // 4 == 2 * B
    assert math.prod((B, S, 2)) == 2 * B * S
    assert sum([B, S, B]) == 2 * B + S
    assert str(2 * B * S + 1) == "1 + 2*batch*length"


def test_an_extent_of_one_value_is_a_number() -> None:
    assert symbolic(Symbol("fixed", 7, 7)) == 7
    assert not isinstance(symbolic(Symbol("fixed", 7, 7)), Dim)


def test_comparisons_hold_for_the_whole_range() -> None:
    assert _bounds(12 * B) == (12, 768)
    assert _bounds(512 - S) == (0, 496)
    assert 12 * B > 11
    assert S >= 16
    assert not S > 512
    assert B < S * 4 + 1
    assert 1 <= B * S <= 2**15
    assert bool(B)
    assert max(S, 3) == S
    assert math.ceil(S) == math.floor(S) == S


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda: B > 1, "batch, from 1 to 64"),
        (lambda: S < 512, "length, from 16 to 512"),
        (lambda: S % 8, "% 8"),
        (lambda: S // 3, "// 3"),
        (lambda: 12 // S, "12"),
        (lambda: S / 2, "length"),
        (lambda: int(S), "length"),
        (lambda: float(B * S), "batch*length"),
        (lambda: divmod(S, 2), "length"),
    ],
)
def test_what_a_range_does_not_decide_is_refused(ask: Callable[[], object], named: str) -> None:
    with pytest.raises(UndecidedExtentError) as caught:
        ask()
    assert named in str(caught.value)


def test_what_reads_the_int_itself_finds_no_extent() -> None:
    with pytest.raises(ValueError, match="negative"):
        np.zeros((S, 2))
    assert list(range(S)) == []
    assert json.loads(json.dumps({"extent": S})) == {"extent": -1}


def test_values_of_symbols() -> None:
    extent = 3 * B * S + 2
    assert isinstance(extent, Dim)
    assert extent.of({BATCH: 2, LENGTH: 100}) == 602
    assert extent.of({BATCH: 2, LENGTH: S}) == 6 * S + 2
    assert greatest(extent) == 3 * 64 * 512 + 2
    assert greatest(5) == typical(5) == 5
    assert typical(B) == 8
    assert typical(B * S) == 8 * round(math.sqrt(16 * 512))


def test_divisibility_is_that_of_all_values() -> None:
    assert divides(8, 16 * S)
    assert not divides(8, S)
    assert divides(8, 24)
    assert not divides(8, 12)
    one = Dim({(Symbol("length", 64, 64),): 1})
    assert divides(8, one)
    assert not divides(48, one)


def test_broadcasting_takes_a_symbol_for_no_one() -> None:
    assert broadcast((B, S, 768), (768,)) == (B, S, 768)
    assert broadcast((B, 1, 768), (1, S, 1)) == (B, S, 768)
    assert broadcast((3, 1), (4,)) == (3, 4)
    with pytest.raises(ValueError, match="batch"):
        broadcast((B, 8), (S, 8))


def test_copies_are_equal() -> None:
    extent = B * S + 1
    assert pickle.loads(pickle.dumps(extent)) == copy.deepcopy(extent) == extent


@pytest.mark.parametrize(("low", "high"), [(0, 4), (5, 4), (-1, 1)])
def test_an_empty_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(InvalidProblemError, match=f"'n' goes from {low} to {high}"):
        Symbol("n", low, high)
