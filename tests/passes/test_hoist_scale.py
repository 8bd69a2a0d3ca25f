"""Numbers that multiply an operand of a product, which become a number behind the product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.arithmetic import hoist_scale
from boltgen.passes.movement.collapse_views import with_fewer_moves
from tests.passes.differential import checked

factors_behind_products = checked(hoist_scale.factors_behind_products, others=True)


def _product(
    *, on_b: bool = False, is_read_again: bool = False, divides: bool = False, view: bool = True
) -> Graph:
    """(0.5 Q) K, heads cut out between; with `on_b` K is multiplied by 4."""
    b = GraphBuilder()
    q = b.add(Expr(op=INPUT, shape=(2, 5, 3, 8), dtype="float32"))
    k = b.add(Expr(op=INPUT, shape=(2, 3, 8, 7), dtype="float32"))
    name, number = ("divide", 2.0) if divides else ("multiply", 0.5)
    scaled = b.elementwise(name, q, b.constant(np.array(number, np.float32)))
    if view:
        left = b.permute_dims(scaled, (0, 2, 1, 3))
    else:
        left = b.operator("flip", (scaled,), (2, 3, 5, 8), "float32", axis=3)
    right = b.elementwise("multiply", k, b.constant(np.array(4.0, np.float32))) if on_b else k
    made = b.matmul(left, right, "float32")
    return b.graph((made, scaled) if is_read_again else made)


@pytest.mark.parametrize(("on_b", "factor"), [(False, 0.5), (True, 2.0)])
@pytest.mark.parametrize("divides", [False, True])
def test_factors_are_behind_the_product(on_b: bool, factor: float, divides: bool) -> None:
    graph = factors_behind_products(_product(on_b=on_b, divides=divides))
    product, number, result = graph.exprs[-3:]
    assert (product.op, number.op, result.op) == ("matmul", CONSTANT, "multiply")
    assert number.scalar == factor
    assert [graph[arg].op for arg in product.args] == ["permute_dims", INPUT]
    assert result.static_shape == (2, 3, 5, 7)


@pytest.mark.parametrize("is_same", [True, False])
def test_factors_go_through_no_broadcast_that_changes_the_shape(is_same: bool) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(2, 3, 5, 8) if is_same else (2, 1, 5, 8), dtype="float32"))
    scaled = b.elementwise("multiply", x, b.constant(np.array(0.5, np.float32)))
    wide = b.operator("broadcast_to", (scaled,), (2, 3, 5, 8), "float32")
    k = b.add(Expr(op=INPUT, shape=(2, 3, 8, 7), dtype="float32"))
    # A broadcast that changes nothing is gone before.
    made = factors_behind_products(with_fewer_moves(b.graph(b.matmul(wide, k, "float32"))))
    assert made.exprs[-1].op == ("multiply" if is_same else "matmul")


def test_factors_that_are_read_elsewhere_stay() -> None:
    graph = _product(is_read_again=True)
    assert factors_behind_products(graph) is graph


def test_factors_before_other_operators_stay() -> None:
    graph = _product(view=False)
    assert factors_behind_products(graph) is graph


def test_a_square_stays() -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(4, 8, 8), dtype="float32"))
    half = b.elementwise("multiply", x, b.constant(np.array(0.5, np.float32)))
    graph = b.graph(b.matmul(half, half, "float32"))
    assert factors_behind_products(graph) is graph


@pytest.mark.parametrize(
    ("name", "number", "shape"),
    [("divide", 0.0, ()), ("multiply", np.inf, ()), ("multiply", 0.5, (1, 1, 1, 1))],
    ids=["divided by zero", "infinite", "of one more dimension"],
)
def test_factors_that_are_no_plain_numbers_stay(
    name: str, number: float, shape: tuple[int, ...]
) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(3, 5, 8), dtype="float32"))
    k = b.add(Expr(op=INPUT, shape=(3, 8, 7), dtype="float32"))
    scaled = b.elementwise(name, x, b.constant(np.full(shape, number, np.float32)))
    graph = b.graph(b.matmul(scaled, k, "float32"))
    assert factors_behind_products(graph) is graph


def test_products_of_integers_stay() -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(5, 8), dtype="int32"))
    k = b.add(Expr(op=INPUT, shape=(8, 7), dtype="int32"))
    graph = b.graph(
        b.matmul(b.elementwise("multiply", x, b.constant(np.array(2, np.int32))), k, "int32")
    )
    assert factors_behind_products(graph) is graph


@pytest.mark.parametrize(
    ("number", "seen"), [(0.5, (-4.0, 12.0)), (-0.5, (-12.0, 4.0)), (0.0, None)]
)
def test_what_was_seen_of_the_product_is_known_without_the_factor(
    number: float, seen: tuple[float, float] | None
) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(5, 8), dtype="float32"))
    k = b.add(Expr(op=INPUT, shape=(8, 7), dtype="float32"))
    scaled = b.elementwise("multiply", x, b.constant(np.array(number, np.float32)))
    graph = b.graph(b.matmul(scaled, k, "float32"))
    exprs = (*graph.exprs[:-1], replace(graph.exprs[-1], observed=(-2.0, 6.0)))
    made = factors_behind_products(replace(graph, exprs=exprs))
    (product,) = (expr for expr in made.exprs if expr.op == "matmul")
    assert product.observed == seen
    assert made.exprs[-1].observed == (-2.0, 6.0)


@pytest.mark.parametrize(
    ("largest", "scaled_largest", "stays"),
    [
        (512000.0, 125.0, True),
        (512000.0, 65504.0, True),
        (512000.0, 65536.0, False),
        (65504.0, 16.0, False),
    ],
)
def test_a_factor_that_brings_an_operand_into_fp16s_range_stays(
    largest: float, scaled_largest: float, stays: bool
) -> None:
    graph = _product()
    (scaled,) = (i for i, expr in enumerate(graph.exprs) if expr.op == "multiply")
    source = graph[scaled].args[0]
    seen = {source: (0.0, largest), scaled: (0.0, scaled_largest)}
    exprs = (replace(each, observed=seen.get(i)) for i, each in enumerate(graph.exprs))
    graph = replace(graph, exprs=tuple(exprs))
    assert (factors_behind_products(graph) is graph) == stays
