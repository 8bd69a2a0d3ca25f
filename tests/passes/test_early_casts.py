"""Casts before reshapes of results."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.passes.precision import early_casts
from tests.passes.differential import checked, operators

with_early_casts = checked(early_casts.with_early_casts)


def _input(b: GraphBuilder) -> int:
    return b.add(Expr(op=INPUT, shape=(4, 6), dtype="float32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_result_is_cast_before_it_is_reshaped(dtype: str) -> None:
    b = GraphBuilder()
    x = b.elementwise("exp", _input(b))
    graph = with_early_casts(b.graph(b.astype(b.reshape(x, (2, 2, 6)), dtype)))
    assert operators(graph) == ["exp", "astype", "reshape"]
    assert graph.exprs[-1].dtype == dtype


def test_what_others_read_and_what_nobody_computed_stays() -> None:
    b = GraphBuilder()
    x = _input(b)
    made = b.reshape(b.elementwise("exp", x), (24,))
    kept = b.graph((b.astype(made, "float16"), made))
    assert with_early_casts(kept).exprs == kept.exprs
    b = GraphBuilder()
    of_input = b.graph(b.astype(b.reshape(_input(b), (24,)), "float16"))
    assert with_early_casts(of_input).exprs == of_input.exprs
    b = GraphBuilder()
    wide = b.constant(np.array(2.0, np.float32))
    x = b.elementwise("multiply", _input(b), wide)
    to_integers = b.graph(b.astype(b.reshape(x, (24,)), "int32"))
    assert with_early_casts(to_integers).exprs == to_integers.exprs
