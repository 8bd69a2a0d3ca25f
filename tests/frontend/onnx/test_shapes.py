"""Open dimensions: names that are equal in the file are one, and what is given must fit."""

from __future__ import annotations

import pytest

from boltgen.errors import ModelImportError
from tests.frontend.onnx.models import model, node, prepared

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
