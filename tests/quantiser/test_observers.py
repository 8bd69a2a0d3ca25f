"""Steps of integers, from what was seen of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boltgen.ir.dtypes import DType
from boltgen.quantiser.observers import Histogram, Observer, Step, step_of

Array = np.ndarray[Any, Any]


def seen(*arrays: Array) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.see_range(array)
        histogram.see_channels(array)
    for array in arrays:
        histogram.see_counts(array)
    return histogram


def mean_square(array: Array, step: Step) -> float:
    """The mean square error of an array's integers."""
    low, high = (-128, 127) if step.dtype is DType.I8 else (0, 255)
    numbers = np.clip(np.rint(array / step.scale), low, high) * step.scale
    return float(np.square(numbers - array).mean())


def test_the_largest_magnitude_of_all_samples_is_the_largest_integer() -> None:
    first, second = np.array([[-6.0, 1.0]], np.float32), np.array([[2.0, 25.4]], np.float32)
    step = step_of(seen(first, second), Observer.MINMAX)
    assert (step.zero, step.dtype) == (0, DType.I8)
    assert step.scale == np.float32(np.float32(25.4) / 127)


@pytest.mark.parametrize("observer", Observer)
def test_a_tensor_without_negative_numbers_is_unsigned(observer: Observer) -> None:
    array = np.linspace(0, 51, 4096, dtype=np.float32).reshape(64, 64)
    step = step_of(seen(array), observer)
    assert (step.zero, step.dtype) == (0, DType.U8)
    assert step.scale == pytest.approx(0.2, rel=0.25 if observer is Observer.ENTROPY else 0.02)


@pytest.mark.parametrize("observer", Observer)
def test_zeros_have_a_step(observer: Observer) -> None:
    assert step_of(seen(np.zeros((4, 4), np.float32)), observer) == Step(
        scale=1.0, zero=0, dtype=DType.U8
    )


@pytest.mark.parametrize("observer", [Observer.PERCENTILE, Observer.ENTROPY])
def test_one_outlier_does_not_make_the_steps_wide(observer: Observer) -> None:
    array = np.random.default_rng(0).standard_normal((1000, 100)).astype(np.float32)
    array[0, 0] = 40.0
    widest = step_of(seen(array), Observer.MINMAX)
    step = step_of(seen(array), observer)
    assert step.scale < widest.scale / 3
    rest = array[1:]
    assert mean_square(rest, step) < mean_square(rest, widest) / 4


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_the_least_mean_square_is_the_least_of_all_observers(power: float) -> None:
    random = np.random.default_rng(1)
    array = (random.standard_normal((400, 100)) ** power).astype(np.float32)
    histogram = seen(array)
    errors = {each: mean_square(array, step_of(histogram, each)) for each in Observer}
    assert errors[Observer.MSE] <= 1.001 * min(errors.values())


def test_channels_have_the_largest_magnitudes_of_the_last_axis() -> None:
    histogram = seen(np.array([[[1.0, -5.0], [3.0, 2.0]]], np.float32), np.full((1, 2, 2), 4.0))
    assert histogram.channels.tolist() == [4.0, 5.0]
    assert histogram.shape == (1, 2, 2)
