"""Where parameters come from: random, trained, or one short sequence again and again."""

import lzma

import numpy as np
import pytest

from models import build
from models.parameters import (
    PERIOD,
    Normal,
    PeriodicParameters,
    RandomParameters,
    TrainedParameters,
    Uniform,
    periodic,
)


def test_random_parameters_repeat_and_depend_on_seed_and_name() -> None:
    distribution = Normal(std=2.0)
    first = RandomParameters(1)("a", (1000,), distribution)
    assert np.array_equal(first, RandomParameters(1)("a", (1000,), distribution))
    assert not np.array_equal(first, RandomParameters(2)("a", (1000,), distribution))
    assert not np.array_equal(first, RandomParameters(1)("b", (1000,), distribution))
    assert first.dtype == np.float32
    assert first.std() == pytest.approx(2.0, rel=0.1)


def test_uniform_parameters_stay_in_their_range() -> None:
    values = RandomParameters(0)("a", (1000,), Uniform(low=0.8, high=1.2))
    assert 0.8 <= values.min() < 0.81
    assert 1.19 < values.max() <= 1.2


def test_trained_parameters_name_what_is_missing_or_misshapen() -> None:
    source = TrainedParameters({"a": np.zeros((2, 3), np.float32)})
    assert source("a", (2, 3), Normal(std=1.0)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"'b', shape \(2, 3\)"):
        source("b", (2, 3), Normal(std=1.0))
    with pytest.raises(ValueError, match=r"'a' has shape \(2, 3\), not \(3, 2\)"):
        source("a", (3, 2), Normal(std=1.0))


def test_periodic_parameters_are_like_random_ones() -> None:
    values = periodic("a", (64, 512), Normal(mean=1.0, std=2.0))
    assert values.dtype == np.float32
    assert values.mean() == pytest.approx(1.0, abs=0.1)
    assert values.std() == pytest.approx(2.0, rel=0.05)
    assert np.array_equal(values.flat[:PERIOD], values.flat[PERIOD : 2 * PERIOD])
    assert len(np.unique(values, axis=0)) == 64
    assert not np.array_equal(values, periodic("b", (64, 512), Normal(mean=1.0, std=2.0)))


def test_periodic_parameters_that_were_uniform_are_constant() -> None:
    assert np.unique(periodic("a", (9,), Uniform(low=0.8, high=1.2))) == [np.float32(1.0)]


def test_a_recipe_makes_periodic_parameters_again() -> None:
    source = PeriodicParameters()
    values = source("a", (3, 4), Normal(std=0.5))
    (recipe,) = source.recipe.items()
    assert recipe == ("a", ((3, 4), Normal(std=0.5)))
    assert np.array_equal(periodic(recipe[0], *recipe[1]), values)


def test_periodic_parameters_compress_in_any_order_of_their_axes() -> None:
    values = periodic("a", (128, 64, 3, 3), Normal(std=0.05)).astype(np.float16)
    for axes in ((0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0)):
        content = np.ascontiguousarray(values.transpose(axes)).tobytes()
        assert len(lzma.compress(content)) < 0.15 * len(content)


def test_models_take_parameters() -> None:
    source = PeriodicParameters()
    model = build("repvgg_a0", image_size=32, parameters=source)
    assert {tensor.name for tensor in model.graph.initializer} == source.recipe.keys()
