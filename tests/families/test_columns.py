"""Formulas over one number and over a column of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boltgen.families.columns import ceil_div, least, most, where

PAIRS = [(1, 2), (7, 3), (4, 4), (0, 5)]


@pytest.mark.parametrize("formula", [least, most, ceil_div])
def test_a_column_has_what_its_numbers_have(formula: Callable[..., Any]) -> None:
    a, b = (np.array(each) for each in zip(*PAIRS, strict=True))
    one_by_one = [formula(*pair) for pair in PAIRS]
    assert all(isinstance(each, int) for each in one_by_one), "numbers stay Python's own"
    assert formula(a, b).tolist() == one_by_one
    assert formula(a, 3).tolist() == [formula(first, 3) for first, _ in PAIRS]


def test_a_choice_is_made_row_by_row() -> None:
    a = np.array([1, 5, 3])
    assert where(a > 2, a, 0).tolist() == [0, 5, 3]
    assert where(True, "then", "otherwise") == "then"
    assert where(False, "then", "otherwise") == "otherwise"
