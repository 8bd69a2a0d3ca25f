"""Weights that are zero where a row has no key: behind their product, or where they are."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.passes.masks import guarded_rows
from tests.passes.differential import assert_same, checked, drawn

empty_rows_behind_products = checked(guarded_rows.empty_rows_behind_products, others=True)


def _attention(
    lowest: float = -np.inf,
    *,
    filled: float = 0.0,
    guard: str = "isnan",
    twice: bool = False,
    is_chosen: bool = False,
    is_negated: bool = False,
    other: float = 0.0,
    axis: int = -1,
    seen_by: tuple[int, ...] = (2, 1, 1, 7),
) -> Graph:
    """where(isnan(w), 0, w) V, where w is the softmax of masked scores.

    The mask is added to scores, or chooses between them and `lowest`, where its truths are false,
    or true. To the scores `other` is added.
    """
    builder = GraphBuilder()

    def given(shape: tuple[int, ...], dtype: str = "float32") -> int:
        return builder.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    scores, values = given((2, 4, 5, 7)), given((2, 4, 7, 3))
    seen = given(seen_by, "bool")
    zero, low = (builder.constant(np.array(each, np.float32)) for each in (0.0, lowest))
    scores = builder.elementwise("add", scores, builder.constant(np.array(other, np.float32)))
    shown = scores if is_chosen else zero
    either = (low, shown) if is_negated else (shown, low)
    shape = (2, 4, 5, 7) if is_chosen else seen_by
    masked = builder.operator("where", (seen, *either), shape, "float32")
    if not is_chosen:
        masked = builder.elementwise("add", scores, masked)
    weights = builder.operator("nn.softmax", [masked], (2, 4, 5, 7), "float32", axis=axis)
    is_nan = builder.operator(guard, [weights], (2, 4, 5, 7), "bool")
    number = builder.constant(np.array(filled, np.float32))
    chosen = builder.operator("where", (is_nan, number, weights), (2, 4, 5, 7), "float32")
    product = builder.matmul(chosen, values, "float32")
    return builder.graph((product, chosen) if twice else product)


@pytest.mark.parametrize("is_chosen", [False, True])
@pytest.mark.parametrize("is_negated", [False, True])
def test_rows_without_keys_are_zero_as_before(is_chosen: bool, is_negated: bool) -> None:
    graph = _attention(is_chosen=is_chosen, is_negated=is_negated)
    made = empty_rows_behind_products(graph)
    assert "isnan" not in {expr.op for expr in made.exprs}
    *numbers, seen = drawn(graph)
    seen[1] = is_negated
    (wanted,) = run(graph, [*numbers, seen])
    assert not wanted[1].any() and np.abs(wanted[0]).min() > 0
    assert_same(graph, made, inputs=lambda graph, sizes: [*numbers, seen])


def test_zeros_become_a_factor_of_rows_behind_the_product() -> None:
    made = empty_rows_behind_products(_attention())
    assert [expr.op for expr in made.exprs[-4:]] == ["astype", "max", "broadcast_to", "multiply"]
    product, factor = (made[arg] for arg in made.exprs[-1].args)
    assert (product.op, factor.shape) == ("matmul", (2, 1, 5, 1))
    assert made[product.args[0]].op == "nn.softmax"
    assert "isnan" not in {expr.op for expr in made.exprs}


@pytest.mark.parametrize(
    "graph",
    [
        _attention(axis=-2),
        _attention(seen_by=(7,)),
        _attention(-1e9),  # such a row is no NaN
        _attention(filled=1.0),
        _attention(guard="isinf"),
        _attention(twice=True),
        _attention(other=-np.inf),  # such a row may be empty though it sees keys
    ],
    ids=[
        "along rows",
        "one mask of all",
        "finite",
        "ones",
        "another guard",
        "read twice",
        "hidden twice",
    ],
)
def test_what_only_looks_like_it_stays(graph: Graph) -> None:
    assert empty_rows_behind_products(graph) is graph
