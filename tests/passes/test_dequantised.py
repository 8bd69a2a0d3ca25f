"""Constants made of whole numbers, scales and zero points: which are found, and what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Array, Expr, GraphBuilder
from boltgen.passes.weights.dequantised import Dequantised, constant, dequantised, pack

NUMBERS = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
Build = Callable[[GraphBuilder], int]


def _built(build: Build) -> tuple[Array | None, Dequantised | None]:
    b = GraphBuilder()
    at = build(b)
    graph = b.graph(at)
    return constant(graph, at), dequantised(graph, at)


def _of(b: GraphBuilder, name: str, *arrays: Array) -> int:
    return b.elementwise(name, *map(b.constant, arrays))


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda b: _of(b, "add", NUMBERS, NUMBERS), NUMBERS + NUMBERS),
        (lambda b: _of(b, "subtract", NUMBERS, np.int8(3)), NUMBERS - 3),
        (lambda b: _of(b, "multiply", NUMBERS, NUMBERS), NUMBERS * NUMBERS),
        (lambda b: b.astype(b.constant(NUMBERS), "int32"), NUMBERS.astype(np.int32)),
        (lambda b: b.add(Expr(op=CONSTANT, shape=(), dtype="int8", scalar=3.0)), np.int8(3)),
        (lambda b: b.permute_dims(b.constant(NUMBERS), (1, 0)), NUMBERS.T),
    ],
    ids=["sum", "difference", "product", "cast", "number", "moved"],
)
def test_whole_numbers_are_computed(build: Build, wanted: Array) -> None:
    found, _ = _built(build)
    assert found is not None
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def _input(b: GraphBuilder, *shape: int | str, dtype: str = "int8") -> int:
    return b.add(Expr(op=INPUT, shape=shape, dtype=dtype))


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.elementwise("add", b.constant(NUMBERS), _input(b, 3, 4)),
        lambda b: b.astype(b.constant(NUMBERS.astype(np.float32)), "int8"),
        lambda b: _of(b, "maximum", NUMBERS, NUMBERS),
        lambda b: _of(b, "add", NUMBERS.astype(np.float32), NUMBERS.astype(np.float32)),
        lambda b: b.add(
            Expr(op="astype", args=(b.constant(NUMBERS),), shape=("n", 4), dtype="int32")
        ),
        lambda b: b.permute_dims(_input(b, 3, 4), (1, 0)),
    ],
    ids=["an input", "of floats", "an operator", "floats", "sizes", "a moved input"],
)
def test_other_numbers_are_no_constants(build: Build) -> None:
    assert _built(build)[0] is None


def _wide(b: GraphBuilder, numbers: Array = NUMBERS) -> int:
    return b.astype(b.constant(numbers), "float32")


def _operator(b: GraphBuilder, numbers: Array, scale: Array, zero: Array, axis: int = 0) -> int:
    args = [b.constant(each) for each in (numbers, scale, zero)]
    return b.operator("dequantize", args, numbers.shape, "float32", axis=axis)


def _scaled(b: GraphBuilder, x: int, *steps: tuple[str, Array]) -> int:
    for name, array in steps:
        x = b.elementwise(name, x, b.constant(np.asarray(array, np.float32)))
    return x


ROWS = np.array([[1.0], [2.0], [3.0]], np.float32)


@pytest.mark.parametrize(
    ("build", "scales", "zeros"),
    [
        (_wide, 1.0, 0),
        (lambda b: _scaled(b, _wide(b), ("subtract", 2.0), ("multiply", ROWS)), ROWS, 2),
        (lambda b: _scaled(b, _wide(b), ("multiply", 0.5), ("multiply", 4.0)), 2.0, 0),
        (lambda b: _scaled(b, _wide(b), ("subtract", 65535.0)), 1.0, 65535),
        (lambda b: b.elementwise("multiply", b.constant(ROWS), _wide(b)), ROWS, 0),
        (
            lambda b: _operator(b, NUMBERS, ROWS.reshape(-1), np.arange(3, dtype=np.int8)),
            ROWS,
            [[0], [1], [2]],
        ),
        (lambda b: _operator(b, NUMBERS, np.float32(2), np.int8(1)), 2.0, 1),
        (
            lambda b: _operator(b, NUMBERS, np.arange(4, dtype=np.float32), np.int8(1), 1),
            [range(4)],
            1,
        ),
    ],
    ids=["cast", "around", "twice", "far", "scale first", "by rows", "one scale", "by columns"],
)
def test_scales_and_zero_points_are_found(build: Build, scales: object, zeros: object) -> None:
    _, found = _built(build)
    assert found is not None
    np.testing.assert_array_equal(found.numbers, NUMBERS)
    for array, wanted in ((found.scales, scales), (found.zeros, zeros)):
        whole = np.broadcast_to(np.asarray(wanted), NUMBERS.shape)
        np.testing.assert_array_equal(np.broadcast_to(array, NUMBERS.shape), whole)


@pytest.mark.parametrize(
    "build",
    [
        lambda b: _scaled(b, _wide(b), ("subtract", 0.5)),
        lambda b: _scaled(b, _wide(b), ("subtract", 65536.0)),
        lambda b: _scaled(b, _wide(b), ("multiply", 2.0), ("subtract", 1.0)),
        lambda b: _scaled(b, _wide(b), ("multiply", ROWS), ("subtract", 1.0)),
        lambda b: _scaled(b, _wide(b), ("multiply", np.ones((2, 3, 4)))),
        lambda b: _scaled(b, _wide(b), ("add", 1.0)),
        lambda b: b.elementwise("multiply", _wide(b), _input(b, 3, 4, dtype="float32")),
        lambda b: b.astype(b.constant(NUMBERS.astype(np.float16)), "float32"),
        lambda b: b.astype(b.constant(NUMBERS), "float64"),
        lambda b: _operator(b, NUMBERS.astype(np.float32), np.float32(1), np.int8(0)),
        lambda b: _operator(b, NUMBERS, np.float32(1), np.float32(0)),
        lambda b: _operator(b, NUMBERS, np.int8(1), np.int8(0)),
    ],
    ids=[
        *("half", "too far", "after a scale", "after scales", "larger", "sum", "an input"),
        *("of floats", "double", "float numbers", "float zeros", "whole scales"),
    ],
)
def test_other_spellings_are_not_found(build: Build) -> None:
    assert _built(build)[1] is None


@pytest.mark.parametrize("place", range(3))
def test_an_operator_on_an_input_is_not_found(place: int) -> None:
    b = GraphBuilder()
    args = [b.constant(each) for each in (NUMBERS, np.float32(2), np.int8(1))]
    args[place] = _input(b, *b.shape(args[place]), dtype=b.dtype(args[place]))
    at = b.operator("dequantize", args, NUMBERS.shape, "float32", axis=0)
    graph = b.graph(at)
    assert dequantised(graph, len(graph) - 1) is None


def _form(low: int, high: int, scale: float = 0.5, k: int = 32) -> tuple[int, int] | None:
    """The bits and the group of weights with these ends."""
    numbers = np.full((2, k), low, np.int16)
    numbers[1, 1] = high
    found = pack(Dequantised(numbers, np.float32(scale).reshape(()), np.zeros((), np.int32)))
    return None if found is None else (found[0].bits, found[0].group)


@pytest.mark.parametrize(
    ("low", "high", "bits"),
    [
        *((0, 15, 4), (-8, 7, 4), (-1, 15, 8), (0, 16, 8), (-9, 0, 8), (0, 255, 8)),
        *((-128, 127, 8), (-1, 255, None), (0, 256, None), (-129, 0, None)),
    ],
)
def test_numbers_take_the_fewest_bits_that_hold_them(low: int, high: int, bits: int | None) -> None:
    found = _form(low, high)
    assert (None if found is None else found[0]) == bits


@pytest.mark.parametrize(
    ("scale", "is_packed"),
    [
        (2.0**-14, True),
        (2.0**-15, True),  # subnormal, and exact
        (1.1 * 2.0**-14, True),
        (1.1 * 2.0**-15, False),
        (255.875, True),
        (256.0, False),
        (65504.0 / 256, True),
        (np.inf, False),
    ],
)
def test_scales_are_as_good_in_fp16(scale: float, is_packed: bool) -> None:
    assert (_form(0, 15, scale) is not None) == is_packed


@pytest.mark.parametrize(
    ("k", "group"), [(8, 16), (16, 16), (17, 32), (32, 32), (64, 64), (128, 128), (1024, 256)]
)
def test_a_group_is_less_than_twice_a_row(k: int, group: int) -> None:
    assert _form(0, 15, k=k) == (4, group)
