"""Open dimensions: names that are equal in the file are one, and what is given must fit."""

from __future__ import annotations

import pytest

from benchmarks.cases.onnx_models import model, node, prepared
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import ranges_of

SUM = [node("Add", ["x", "z"], ["y"])]
OPEN = {"x": ("batch", 4), "z": ("batch", 1)}


def test_a_dimension_that_is_given_is_fixed_in_every_input() -> None:
    assert prepared(model(SUM, OPEN)).shapes == {"x": ("batch", 4), "z": ("batch", 1)}
    assert prepared(model(SUM, OPEN), x=(3, 4)).shapes == {"x": (3, 4), "z": (3, 1)}


def test_shapes_that_give_one_dimension_two_values() -> None:
    with pytest.raises(ModelImportError, match=r"'batch' both 3 \(input 'x'\) and 2"):
        prepared(model(SUM, OPEN), x=(3, 4), z=(2, 1))


def test_names_that_are_no_identifiers() -> None:
    made = model(SUM, {"x": ("2 * n; rm -rf", None), "z": (None, "x_1")})
    shapes = [extent for shape in prepared(made).shapes.values() for extent in shape]
    assert all(isinstance(extent, str) and extent.isidentifier() for extent in shapes)
    assert len(set(shapes)) == 4


def test_what_stays_open_has_the_names_of_the_model() -> None:
    assert prepared(model(SUM, OPEN), x=("1..8", 4)).shapes == {
        "x": ("batch", 4),
        "z": ("batch", 1),
    }
    unnamed = prepared(model(SUM, {"x": (None, 4), "z": (1, 4)}), x=("rows", 4)).shapes
    assert unnamed == {"x": ("x_0", 4), "z": (1, 4)}


@pytest.mark.parametrize("shape", [(3, "1..4"), ("rows", 4), ("1..8", "w"), ("1..8",)])
def test_open_dimensions_that_the_model_does_not_have(shape: tuple[int | str, ...]) -> None:
    with pytest.raises(ModelImportError) as caught:
        prepared(model(SUM, OPEN), x=shape)
    assert f"({', '.join(map(str, shape))})" in str(caught.value)
    assert "(batch, 4)" in str(caught.value)


def test_ranges_are_those_of_names() -> None:
    found = {"x": ("batch", 4), "z": ("batch", "w")}
    assert ranges_of(found, {"x": ("1..8", 4), "z": ("?", "2..3")}) == {
        "batch": (1, 8),
        "w": (2, 3),
    }
    with pytest.raises(ModelImportError, match=r"'batch' both 1\.\.8 and 1\.\.9 \(input 'z'\)"):
        ranges_of(found, {"x": ("1..8", 4), "z": ("1..9", 3)})
