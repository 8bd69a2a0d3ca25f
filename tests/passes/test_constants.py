"""Which constants a type holds, which it keeps, and by which powers of two others are scaled."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.errors import ModelImportError
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.constants import as_weight, fits, keeps, power_of_two
from tests.passes.differential import AnyArray

F16, BF16 = DType.F16, DType.BF16


def _array(*numbers: float) -> AnyArray:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(
    ("array", "precision", "is_held"),
    [
        (_array(65504, 1), F16, True),
        (_array(-65505), F16, False),
        (_array(65505), BF16, True),
        (_array(np.inf, -np.inf), F16, True),
        (_array(np.inf, 1e5), F16, False),
        (_array(), F16, True),
    ],
)
def test_finite_numbers_stay_finite(array: AnyArray, precision: DType, is_held: bool) -> None:
    assert fits(array, precision) is is_held


@pytest.mark.parametrize(
    ("array", "precision", "is_kept"),
    [
        (_array(0.1, 3.0), F16, True),
        (_array(1e-9, 2e-9), F16, False),
        (_array(1e-9, 2e-9), BF16, True),
        (_array(1e-9, 2e-9).astype(np.float16), F16, True),
        (_array(1e-9, 2e-9, 1.0), F16, True),  # the error is small beside the one
        (_array(2.0**-20, 2.0**-24), F16, True),  # FP16 has them
        (_array(), F16, True),
        (_array(1e30), F16, True),  # whose square FP32 has not
        (_array(0.0, 0.0), F16, True),
        # Halfway between numbers of FP16 that are n times its least: off by half of 1 in n.
        (_array(*[(512 + 0.5) * 2.0**-24] * 4), F16, True),
        (_array(*[(100 + 0.5) * 2.0**-24] * 4), F16, False),
    ],
)
def test_a_rounding_loses_less_than_a_part_of_512(
    array: AnyArray, precision: DType, is_kept: bool
) -> None:
    assert keeps(array, precision) is is_kept


def test_a_weight_is_scaled_to_numbers_near_one() -> None:
    weight = _array(3e-9, -1e-9, 2e-9, 0.5e-9).reshape(2, 2)
    factor = power_of_two(weight, 0, F16, by_channel=False)
    assert factor is not None
    assert np.log2(factor) == np.round(np.log2(factor))
    assert 1 <= float(np.abs(weight * factor).max()) < 2
    assert factor.shape == (1,)
    assert power_of_two(weight * 2.0**29, 0, F16, by_channel=False) is None


@pytest.mark.parametrize("axis", [0, 1])
def test_each_channel_is_scaled_where_each_keeps_its_bits(axis: int) -> None:
    weight = np.stack([_array(1.0, 1.5), _array(1e-9, 1.7e-9), _array(0, 0)], axis)
    assert power_of_two(weight, axis, F16, by_channel=False) is None
    factors = power_of_two(weight, axis, F16, by_channel=True)
    assert factors is not None
    scaled = np.moveaxis(weight, axis, 0) * factors[:, None]
    assert factors.tolist() == [1.0, 2.0**30, 1.0]
    assert [float(row.max()) >= 1 for row in scaled] == [True, True, False]
    assert keeps(scaled[1].astype(np.float32), F16)


def test_one_factor_is_enough_where_all_channels_are_small() -> None:
    weight = np.stack([_array(1e-9, 1.5e-9), _array(3e-9, 2e-9)])
    factors = power_of_two(weight, 0, F16, by_channel=True)
    assert factors is not None and factors.shape == (1,)


def test_the_inverse_of_a_factor_is_a_number_of_fp32() -> None:
    factor = power_of_two(_array(1e-44).reshape(1, 1), 0, F16, by_channel=False)
    assert factor is not None and factor.tolist() == [2.0**126]


@pytest.mark.parametrize(("number", "said"), [(np.inf, "inf"), (np.nan, "nan"), (1e6, "1e[+]06")])
def test_a_weight_beyond_its_type_is_refused(number: float, said: str) -> None:
    weight = _array(1.0, number)
    with pytest.raises(ModelImportError, match=rf"of fc, of shape \(2,\), contains {said};"):
        as_weight(weight, "fc", F16, allow_nonfinite=False)
    made = as_weight(weight, "fc", F16, allow_nonfinite=True)
    assert made.dtype == np.float16
    assert not np.isfinite(made[1])
    assert as_weight(weight[:1], "fc", F16, allow_nonfinite=False).tolist() == [1.0]
