"""Which constants of a model are refused by their names."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.errors import ModelImportError
from boltgen.passes.weights.checks import FP16_MAX, refuse_nan


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            np.array([[1, 2], [np.nan, np.nan]], np.float32),
            r"w contains NaN \(nan at \[1, 0\], 2 of",
        ),
        (np.array(np.nan, np.float32), r"w contains NaN \(nan, 1 of 1 elements\)"),
        (np.array([np.inf, np.nan], np.float16), r"at \[1\], 1 of 2 elements"),
    ],
)
def test_not_a_number_is_named_with_its_place(array: np.ndarray, said: str) -> None:
    with pytest.raises(ModelImportError, match=said):
        refuse_nan("w", array)


@pytest.mark.parametrize("numbers", [[], [[]], [1.0, -2.0], [-np.inf, np.inf], 0.0])
def test_other_constants_pass(numbers: object) -> None:
    refuse_nan("w", np.array(numbers, np.float32))


def test_the_largest_number_of_fp16() -> None:
    assert float(np.finfo(np.float16).max) == FP16_MAX
