"""Shapes of a run's inputs that contradict each other, or formulas, or ranges, are named."""

from __future__ import annotations

import pytest

from boltgen.artifact.metadata import DimensionInfo, TensorInfo
from boltgen.errors import InputError
from boltgen.running.sizes import check_sizes, names_in, shape_at

PYRAMID = (
    TensorInfo(name="z", shape=(1, "2*h", "w + 1"), dtype="float32"),
    TensorInfo(name="x", shape=(1, "h", "w"), dtype="float32"),
)
PATCHES = (TensorInfo(name="x", shape=("4*h + 1", 8), dtype="float32"),)
LIMITS = (
    DimensionInfo(name="h", low=2, high=6),
    DimensionInfo(name="2*h", low=4, high=10),
)


def test_formulas_are_checked_whatever_the_order_of_the_inputs() -> None:
    assert check_sizes(PYRAMID, {"x": (1, 3, 5), "z": (1, 6, 6)}, LIMITS) == {"h": 3, "w": 5}


def test_a_dimension_follows_from_a_formula_alone() -> None:
    assert check_sizes(PATCHES, {"x": (13, 8)}, LIMITS[:1]) == {"h": 3}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"x": (1, 3, 5), "z": (1, 7, 6)}, r"'z' has the extent 7 at axis 1, .*2\*h = 6.*h = 3"),
        ({"x": (1, 3, 5), "z": (1, 6, 5)}, r"'z' has the extent 5 at axis 2, .*w \+ 1 = 6"),
        ({"x": (1, 3, 5), "z": (1, 6)}, r"'z' has shape \(1, 6\)"),
        ({"x": (1, 0, 5), "z": (1, 0, 6)}, r"'z' has shape \(1, 0, 6\).*no dimension may be 0"),
        ({"x": (1, 7, 5), "z": (1, 14, 6)}, "'z' has h = 7, .* compiled for 2 to 6"),
        ({"x": (1, 6, 5), "z": (1, 12, 6)}, r"'z' has 2\*h = 12, .* compiled for 4 to 10"),
    ],
)
def test_what_contradicts_is_named(shapes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_sizes(PYRAMID, shapes, LIMITS)


@pytest.mark.parametrize(
    ("rows", "said"),
    [(12, r"12 at axis 0, which is 4\*h \+ 1 for no whole h"), (1, "h = 0"), (5, "from 2|2 to 6")],
)
def test_an_extent_that_no_dimension_gives_is_named(rows: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_sizes(PATCHES, {"x": (rows, 8)}, LIMITS[:1])


def test_a_range_may_have_no_end() -> None:
    limits = (DimensionInfo(name="h", low=2, high=None),)
    check_sizes(PATCHES, {"x": (4 * 10**6 + 1, 8)}, limits)
    with pytest.raises(InputError, match=r"h = 1, .* compiled for 2 on"):
        check_sizes(PATCHES, {"x": (5, 8)}, limits)


def test_shapes_at_sizes() -> None:
    assert names_in(PYRAMID) == ("h", "w")
    assert shape_at(("2*h", 3, "w"), {"h": 4, "w": 5}) == (8, 3, 5)
