"""Views by their strides, against the elements that NumPy finds there."""

from __future__ import annotations

from itertools import takewhile
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import NONE, Attributes, Permutation, Slice, SteppedSlice
from boltgen.graph.graph import Expr
from boltgen.graph.view import Spread, Strided, strided_whole

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple)


def _elements(x: Strided) -> list[int]:
    """Return the places of a view's elements in memory, in order."""
    places = np.array([x.offset])
    for extent, stride in (step for dim in x.dims for step in dim):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    return [int(place) for place in places]


def _expr(op: str, shape: tuple[int, ...], attrs: Attributes = NONE) -> Expr:
    return Expr(op=op, args=(0,), shape=shape, attrs=attrs)


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
                axes = tuple(data.draw(st.permutations(range(array.ndim))))
                after = array.transpose(axes)
                expr = _expr("permute_dims", after.shape, Permutation(axes))
                made = x.after(expr)
                assert made is not None
                assert made.before(expr, array.shape) == x
            case "slice":
                axis = data.draw(st.integers(0, array.ndim - 1))
                begin = data.draw(st.integers(0, array.shape[axis] - 1))
                count = data.draw(st.integers(1, array.shape[axis] - begin))
                after = array.take(range(begin, begin + count), axis)
                attrs = Slice(axis, begin, begin + count)
                made = x.after(_expr("strided_slice", after.shape, attrs))
            case _:
                wanted = data.draw(_shapes_of(array.size))
                after = array.reshape(wanted)
                made = x.after(_expr("reshape", wanted))
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


def test_other_operators_are_no_views() -> None:
    whole = strided_whole((4, 6))
    assert whole.after(_expr("nn.relu", (4, 6))) is None
    every_second = _expr("strided_slice", (2, 6), SteppedSlice((0, 0, 2)))
    assert whole.after(every_second) is None


def test_neighbouring_dimensions_are_one_where_one_stride_leads_along_them() -> None:
    x = strided_whole((2, 5, 24)).sliced(2, 8, 8)
    assert x is not None
    assert (x.steps(0, 2), x.steps(0, 3)) == (((10, 24),), ((10, 24), (8, 1)))
    assert strided_whole((1, 7)).steps(0, 1) == ()


@settings(deadline=None)
@given(SHAPES, st.data())
def test_a_broadcast_keeps_or_repeats_elements_as_numpy_does(
    wanted: tuple[int, ...], data: st.DataObject
) -> None:
    kept = [data.draw(st.booleans()) for _ in wanted]
    full = tuple(each if is_own else 1 for each, is_own in zip(wanted, kept, strict=True))
    missing = data.draw(st.integers(0, len([*takewhile(lambda each: each == 1, full)])))
    x = Spread.of(full[missing:], wanted)
    assert x is not None
    places = np.broadcast_to(np.arange(prod(full)).reshape(full[missing:]), wanted)
    first = data.draw(st.integers(0, len(wanted)))
    last = data.draw(st.integers(first, len(wanted)))
    # The places along these dimensions, at the beginning of all others.
    begin = tuple(slice(None) if first <= at < last else 0 for at in range(len(wanted)))
    found = len(np.unique(places[begin]))
    assert x.repeats(first, last) == (found == 1)
    assert x.keeps(first, last) == (found == prod(wanted[first:last]))
    assert Spread.of((2, *wanted), wanted) is None
