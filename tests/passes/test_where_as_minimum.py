"""Choices between scores and a number, which become minima that attention's kernel takes."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.masks import where_as_minimum
from tests.passes.differential import checked

masks_as_bounds = checked(where_as_minimum.masks_as_bounds, others=True)

LOWEST = {"float16": -65504.0, "float32": float(np.finfo(np.float32).min)}


def choice(
    number: float, dtype: str = "float16", *, is_seen: bool = True, end: str = "nn.softmax"
) -> Graph:
    """softmax(where(seen, scores, number)), or where(hidden, number, scores)."""
    b = GraphBuilder()
    scores = b.add(Expr(op=INPUT, shape=(2, 3, 4, 5), dtype=dtype))
    mask = b.add(Expr(op=INPUT, shape=(2, 1, 1, 5), dtype="bool"))
    low = b.constant(np.array(number, dtype))
    either = (scores, low) if is_seen else (low, scores)
    chosen = b.operator("where", (mask, *either), (2, 3, 4, 5), dtype)
    wide = b.astype(chosen, "float32")
    return b.graph(b.operator(end, (wide,), (2, 3, 4, 5), "float32", axis=-1))


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    ("number", "dtype"),
    [(-65504.0, "float16"), (-np.inf, "float16"), (LOWEST["float32"], "float32")],
)
def test_a_choice_of_the_lowest_number_is_a_minimum(
    number: float, dtype: str, is_seen: bool
) -> None:
    graph = masks_as_bounds(choice(number, dtype, is_seen=is_seen))
    (where,) = (expr for expr in graph.exprs if expr.op == "where")
    (minimum,) = (expr for expr in graph.exprs if expr.op == "minimum")
    assert (where.shape, where.dtype) == ((2, 1, 1, 5), dtype)
    values = [graph[arg].scalar for arg in where.args[1:]]
    assert values == ([np.inf, number] if is_seen else [number, np.inf])
    assert [graph[arg].op for arg in minimum.args] == [INPUT, "where"]
    assert (minimum.shape, minimum.dtype) == ((2, 3, 4, 5), dtype)


@pytest.mark.parametrize(
    "graph",
    [
        choice(-1e4),  # a score may be below
        choice(-65504.0, "float32"),
        choice(0.0),
        choice(-np.inf, end="nn.log_softmax"),
    ],
    ids=["finite", "wide", "zero", "no-softmax"],
)
def test_other_choices_stay(graph: Graph) -> None:
    assert masks_as_bounds(graph) is graph


def test_a_result_of_the_model_stays() -> None:
    graph = choice(-np.inf)
    where = next(index for index, expr in enumerate(graph.exprs) if expr.op == "where")
    escaping = Graph(graph.exprs, graph.escaping | {where}, graph.results)
    assert masks_as_bounds(escaping) is escaping
