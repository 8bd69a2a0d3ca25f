"""Reshapes of tensors whose dimensions lie in another order than they are written in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.precision.values import inverse, permuted, regrouped

NHWC = (0, 2, 3, 1)


@pytest.mark.parametrize(
    ("shape", "order", "target", "found"),
    [
        ((2, 16, 4, 4), NHWC, (2, 16, 16), (0, 2, 1)),  # the patches of an image
        ((2, 16, 30), (0, 2, 1), (2, 16, 1, 30), NHWC),  # a sequence as an image
        ((2, 16, 1, 30), NHWC, (2, 16, 30), (0, 2, 1)),
        ((2, 16, 4, 4), NHWC, (2, 4, 4, 4, 4), (0, 3, 4, 1, 2)),  # groups of channels
        ((2, 16, 4, 4), NHWC, (32, 4, 4), None),  # channels lie last
        ((2, 16, 4, 4), NHWC, (2, 256), None),
        ((2, 6, 4), (0, 2, 1), (2, 8, 3), None),
    ],
)
def test_reshapes(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    target: tuple[int, ...],
    found: tuple[int, ...] | None,
) -> None:
    assert regrouped(shape, order, target) == found


def test_an_open_extent_is_compared_by_what_it_is() -> None:
    batch = symbolic(Symbol("batch", 1, 8))
    assert regrouped((batch, 16, 4, 4), NHWC, (batch, 16, 16)) == (0, 2, 1)
    assert regrouped((batch, 16, 4, 4), NHWC, (batch * 16, 4, 4)) is None
    longer = 1 + batch  # as a cache and a new key
    assert regrouped((2, 4, 16, longer), (0, 1, 3, 2), (8, 16, longer)) == (0, 2, 1)


@given(data=st.data())
def test_elements_stay_where_they_are(data: st.DataObject) -> None:
    """What lies in the order that is found, read as the target, is the reshaped tensor."""
    blocks = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    order = tuple(data.draw(st.permutations(range(len(blocks)))))
    target: list[int] = []
    for extent in blocks:
        splits = [extent] if data.draw(st.booleans()) else [2, extent // 2]
        target += splits if np.prod(splits) == extent else [extent]
        target += [1] if data.draw(st.booleans()) else []
    shape, made = tuple(blocks), tuple(target)
    found = regrouped(shape, order, made)
    assert found is not None  # dimensions are only split
    logical = np.arange(np.prod(shape)).reshape(shape)
    stored = logical.transpose(order)
    seen = stored.reshape(permuted(made, found)).transpose(inverse(found))
    assert np.array_equal(seen, logical.reshape(made))
