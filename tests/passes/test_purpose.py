"""Which values a graph's author takes for angles, scores, distances and small numbers."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.passes.precision.purpose import (
    angles,
    distances,
    infinities,
    quantised,
    scores,
    sizes_ahead,
)
from tests.passes.networks import F32, ROWS, Net


def test_an_angle_is_followed_back_to_what_is_no_arithmetic() -> None:
    b = Net()
    places, other = b.input(*ROWS), b.input(*ROWS)
    root = b.elementwise("multiply", places, other)
    product = b.product(root, 8)
    angle = b.elementwise("add", product, places)
    graph = b.graph((b.elementwise("sin", angle), b.elementwise("exp", root)))
    found = angles(graph)
    assert {angle, product, places} <= found
    assert not {root, other} & found


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_operands_of_circular_functions_are_angles(name: str) -> None:
    b = Net()
    x = b.input(*ROWS)
    assert angles(b.graph(b.elementwise(name, x))) == {x}


def test_infinities_are_carried_by_arithmetic_and_choices() -> None:
    b = Net()
    x, low, one = b.input(*ROWS), b.number(-np.inf), b.number(1.0)
    masked = b.elementwise("add", x, low)
    seen = b.operator("greater", (x, one), ROWS, "bool")
    chosen = b.operator("where", (seen, x, low), ROWS, F32)
    softened = b.softmax(masked, -1)
    finite = b.elementwise("add", x, one)
    graph = b.graph((softened, chosen, finite, b.constant(np.array([1, 2], np.int32))))
    assert infinities(graph) == {low, masked, chosen}


def test_scores_are_read_by_softmaxes_alone() -> None:
    b = Net()
    x, mask = b.input(2, 5, 5), b.input(5, 5)
    made = b.matmul(x, x, F32)
    masked = b.elementwise("add", made, mask)
    graph = b.graph(b.softmax(masked, -1))
    assert scores(graph) == {made, masked, mask}


@pytest.mark.parametrize("how", ["result", "other", "negative"])
def test_what_somebody_else_reads_is_no_score(how: str) -> None:
    b = Net()
    made = b.elementwise("exp", b.input(5, 5))
    read = b.elementwise("negative", made) if how == "negative" else made
    results = [b.softmax(read, -1)]
    if how == "result":
        results.append(made)
    if how == "other":
        results.append(b.elementwise("tanh", made))
    found = scores(b.graph(tuple(results)))
    assert made not in found
    assert (read in found) == (how == "negative")


def test_the_distance_of_a_bounded_function_matters_to_a_logarithm() -> None:
    b = Net()
    x, one = b.input(*ROWS), b.number(1.0)
    bounded = b.elementwise("sigmoid", x)
    rest = b.elementwise("subtract", one, bounded)
    other = b.elementwise("tanh", x)
    graph = b.graph((b.elementwise("log", rest), b.elementwise("add", other, one)))
    assert distances(graph) == {bounded, rest}


def test_a_divisor_alone_has_a_distance() -> None:
    b = Net()
    x = b.input(*ROWS)
    above, below = b.elementwise("sigmoid", x), b.elementwise("tanh", x)
    assert distances(b.graph(b.elementwise("divide", above, below))) == {below}


def test_a_relu_keeps_no_distance() -> None:
    b = Net()
    bounded = b.elementwise("sigmoid", b.input(*ROWS))
    graph = b.graph(b.elementwise("log", b.elementwise("nn.relu", bounded)))
    assert distances(graph) == frozenset()


@pytest.mark.parametrize(
    ("name", "number", "size"),
    [
        ("multiply", 2.0**13, 2.0**-13),
        ("multiply", -(2.0**14), 2.0**-14),
        ("multiply", 2.0**12, None),
        ("divide", 2.0**-13, 2.0**-13),
        ("divide", 2.0**13, None),
        ("add", 2.0**13, None),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_a_large_factor_says_how_small_its_operand_is(
    name: str, number: float, size: float | None, is_first: bool
) -> None:
    b = Net()
    made = b.elementwise("nn.relu", b.elementwise("exp", b.input(*ROWS)))
    factor = b.number(number)
    args = (factor, made) if is_first else (made, factor)
    found = sizes_ahead(b.graph(b.elementwise(name, *args)))
    if is_first and name == "divide":
        size = None
    # A ReLU keeps sizes; an exponential has ordinary ones, whatever is made of it.
    assert found == ({} if size is None else {made: size, made - 1: size})


def test_factors_multiply_up_to_the_largest() -> None:
    b = Net()
    made = b.elementwise("exp", b.input(*ROWS))
    scaled = b.elementwise("multiply", made, b.number(2.0**100))
    found = sizes_ahead(b.graph(b.elementwise("multiply", scaled, b.number(2.0**80))))
    assert found == {scaled: 2.0**-80, made: 2.0**-149}


def test_the_larger_of_two_factors_counts() -> None:
    b = Net()
    made = b.elementwise("exp", b.input(*ROWS))
    twice = [b.elementwise("multiply", made, b.number(2.0**at)) for at in (14, 20, 15)]
    assert sizes_ahead(b.graph(tuple(twice))) == {made: 2.0**-20}


@pytest.mark.parametrize("op", ["multiply", "divide"])
def test_inputs_and_integers_have_no_size_ahead(op: str) -> None:
    b = Net()
    number = 2.0**-14 if op == "divide" else 2.0**14
    assert sizes_ahead(b.graph(b.elementwise(op, b.input(*ROWS), b.number(number)))) == {}
    b = Net()
    whole = b.elementwise("negative", b.input(*ROWS, dtype="int32"))
    factor = b.constant(np.array(2**14, np.int32))
    assert sizes_ahead(b.graph(b.elementwise("multiply", whole, factor))) == {}


@pytest.mark.parametrize("reader", ["", "result", "softmax", "integers"])
def test_values_between_integers_are_only_quantised(reader: str) -> None:
    """A dequantised tensor, an activation, and integers of it again."""
    b = Net()
    scale, zero = b.number(0.5), b.constant(np.array(0, np.int8))
    whole = b.input(*ROWS, dtype="int8")
    made = b.operator("dequantize", (whole, scale, zero), ROWS, F32, axis=0)
    relu = b.elementwise("nn.relu", made)
    again = b.operator("quantize", (relu, scale, zero), ROWS, "int8", axis=0)
    alone = b.elementwise("nn.relu", b.input(*ROWS))
    results = [again, b.operator("quantize", (alone, scale, zero), ROWS, "int8", axis=0)]
    if reader == "result":
        results.append(relu)
    elif reader == "softmax":
        results.append(b.softmax(relu, -1))
    elif reader == "integers":
        results.append(b.operator("dequantize", (again, scale, zero), ROWS, F32, axis=0))
    found = quantised(b.graph(tuple(results)))
    assert found == (frozenset() if reader in {"result", "softmax"} else {made, relu})
