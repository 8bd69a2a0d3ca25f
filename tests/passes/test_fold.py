"""Operators on constants that TVM need not evaluate."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.passes.precision import walk
from boltgen.passes.precision.fold import applied
from tests.passes.differential import operators
from tests.passes.networks import F32, Net


def _applied(name: str, *arrays: np.ndarray, **attrs: object) -> np.ndarray | None:
    first = arrays[0]
    known = attributes_of(name, attrs)
    operator = Operation(name=name, attrs=known, shape=first.shape, dtype=str(first.dtype))
    return applied(operator, arrays)


def test_a_slice_has_other_numbers() -> None:
    zeros, ones = np.zeros((3, 5), np.float32), np.ones((3, 2), np.float32)
    made = _applied("slice_scatter", zeros, ones, axis=1, begin=1, end=4, step=2)
    np.testing.assert_array_equal(made, [[0, 1, 0, 1, 0]] * 3)
    assert not zeros.any()


def test_numbers_that_do_not_fit_the_slice_are_tvm_s() -> None:
    zeros, ones = np.zeros((3, 5), np.float32), np.ones((3, 2), np.float32)
    assert _applied("slice_scatter", zeros, ones, axis=1, begin=0, end=4, step=1) is None
    assert _applied("slice_scatter", zeros, ones) is None


def test_operators_that_models_seldom_apply_to_constants_are_tvm_s() -> None:
    assert _applied("nn.relu", np.array([-1.0], np.float32)) is None


@pytest.mark.parametrize(
    ("elements", "is_folded"), [(1, True), (1 << 22, True), (1 << 23, False)], ids=str
)
@pytest.mark.parametrize("op", ["broadcast_to", "negative"])
def test_a_constant_that_grows_large_is_made_at_run_time(
    op: str, elements: int, is_folded: bool
) -> None:
    net = Net()
    shape = (elements,) if op == "negative" else (1,)
    x = net.constant(np.ones(shape, np.float32))
    made = walk.normalise(net.graph(net.operator(op, (x,), (elements,), F32))).graph
    # A negative is as large as its operand, so that folding it saves memory.
    assert (op in operators(made)) == (op == "broadcast_to" and not is_folded)


def test_remainders_of_numbers_that_are_not_negative() -> None:
    np.testing.assert_array_equal(_applied("mod", np.arange(4) + 6, np.array([8])), [6, 7, 0, 1])
    assert _applied("mod", np.array([-1, 1]), np.array([8])) is None
    assert _applied("mod", np.array([1.5]), np.array([8.0])) is None


def test_sums_of_what_lies_before() -> None:
    x = np.array([[1, 0, 1], [1, 1, 0]])
    made = _applied("cumsum", x, axis=-1, exclusive=False)
    np.testing.assert_array_equal(made, [[1, 1, 2], [1, 2, 2]])
    before = _applied("cumsum", x, axis=-1, exclusive=True)
    np.testing.assert_array_equal(before, [[0, 1, 1], [0, 1, 2]])


def test_elements_at_places_along_an_axis() -> None:
    x, places = np.arange(6).reshape(2, 3), np.array([[2, 0, 2], [1, 1, 0]])
    made = _applied("gather_elements", x, places, axis=1)
    np.testing.assert_array_equal(made, [[2, 0, 2], [4, 4, 3]])
    assert _applied("gather_elements", x, places - 1, axis=1) is None
    assert _applied("gather_elements", x, places + 1, axis=1) is None
