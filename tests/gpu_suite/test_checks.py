"""How far an output may be from what is expected."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.checks import relative_error


def test_an_error_is_relative_to_the_norm():
    expected = np.full(400, 0.5)
    assert relative_error(expected * 1.01, expected) == pytest.approx(0.01)


def test_a_few_elements_that_are_zero_are_right_where_they_are():
    """A ReLU of one negative number."""
    assert relative_error(np.zeros(1), np.zeros(1)) == 0.0
    assert relative_error(np.array([0.01]), np.zeros(1)) == pytest.approx(0.02)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_wrong(value: float):
    assert relative_error(np.array([1.0, value]), np.ones(2)) == float("inf")
