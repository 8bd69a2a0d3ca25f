"""Views by their strides, against the elements that NumPy finds there."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.view import Strided, strided_whole

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple)


def _elements(x: Strided) -> list[int]:
    """Return the places of a view's elements in memory, in order."""
    places = np.array([x.offset])
    for extent, stride in (step for dim in x.dims for step in dim):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    return [int(place) for place in places]


@st.composite
def _shapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """Shapes of so many elements."""
    shape: list[int] = []
    while count > 1:
        factor = draw(st.sampled_from([d for d in range(2, count + 1) if count % d == 0]))
        shape.append(factor)
        count //= factor
    at = draw(st.integers(0, len(shape)))
    return (*shape[:at], 1, *shape[at:])


@settings(deadline=None)
@given(SHAPES, st.data())
def test_views_have_the_elements_that_numpy_has(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    array = np.arange(prod(shape)).reshape(shape)
    x = strided_whole(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        made: Strided | None
        match data.draw(st.sampled_from(["reshape", "permute", "slice"])):
            case "permute":
                axes = data.draw(st.permutations(range(array.ndim)))
                made, after = x.permuted(axes), array.transpose(axes)
            case "slice":
                axis = data.draw(st.integers(0, array.ndim - 1))
                begin = data.draw(st.integers(0, array.shape[axis] - 1))
                count = data.draw(st.integers(1, array.shape[axis] - begin))
                made = x.sliced(axis, begin, count)
                after = array.take(range(begin, begin + count), axis)
            case _:
                wanted = data.draw(_shapes_of(array.size))
                made, after = x.reshaped(wanted), array.reshape(wanted)
        if made is None:
            continue  # no strides say this view of such a tensor
        x, array = made, after
        assert [prod(extent for extent, _ in dim) for dim in x.dims] == list(array.shape)
        assert _elements(x) == list(array.reshape(-1))


def test_a_view_of_a_whole_tensor_is_found() -> None:
    heads = strided_whole((2, 5, 24)).reshaped((2, 5, 3, 8))
    assert heads is not None
    assert heads.permuted((0, 2, 1, 3)).dims == (((2, 120),), ((3, 8),), ((5, 24),), ((8, 1),))
    part = strided_whole((2, 5, 24)).sliced(2, 8, 8)
    assert part == Strided((((2, 120),), ((5, 24),), ((8, 1),)), 8)
    assert strided_whole((4, 6)).permuted((1, 0)).reshaped((8, 3)) is None
