"""Weights that are zero where a row has no key: behind their product, or where they are."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.frontend.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.frontend.passes.empty_rows import empty_rows_behind_products


def _attention(
    lowest: float = -np.inf, *, filled: float = 0.0, guard: str = "isnan", twice: bool = False
) -> Graph:
    """where(isnan(w), 0, w) V, where w is the softmax of masked scores."""
    builder = GraphBuilder()

    def given(shape: tuple[int, ...], dtype: str = "float32") -> int:
        return builder.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    scores, values = given((2, 4, 5, 7)), given((2, 4, 7, 3))
    seen = given((2, 1, 1, 7), "bool")
    zero, low = (builder.constant(np.array(each, np.float32)) for each in (0.0, lowest))
    mask = builder.operator("where", (seen, zero, low), (2, 1, 1, 7), "float32")
    masked = builder.elementwise("add", scores, mask)
    weights = builder.operator("nn.softmax", [masked], (2, 4, 5, 7), "float32", axis=-1)
    is_nan = builder.operator(guard, [weights], (2, 4, 5, 7), "bool")
    number = builder.constant(np.array(filled, np.float32))
    chosen = builder.operator("where", (is_nan, number, weights), (2, 4, 5, 7), "float32")
    product = builder.matmul(chosen, values, "float32")
    return builder.graph((product, chosen) if twice else product)


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
        _attention(-1e9),  # such a row is no NaN
        _attention(filled=1.0),
        _attention(guard="isinf"),
        _attention(twice=True),
    ],
    ids=["finite", "ones", "another guard", "read twice"],
)
def test_what_only_looks_like_it_stays(graph: Graph) -> None:
    assert empty_rows_behind_products(graph) is graph
