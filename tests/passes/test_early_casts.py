"""Casts before reshapes of dequantised sums."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.attributes import Axis
from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.passes.precision import early_casts
from tests.passes.differential import checked, operators

with_early_casts = checked(early_casts.with_early_casts)


def _sums(b: GraphBuilder) -> int:
    """Integers that are dequantised, with a bias."""
    x = b.add(Expr(op=INPUT, shape=(4, 6), dtype="int32"))
    numbers = b.constant(np.float32(2**-4).reshape(())), b.constant(np.zeros((), np.int8))
    made = b.operator("dequantize", (x, *numbers), (4, 6), "float32", Axis(1))
    return b.elementwise("add", made, b.constant(np.arange(6, dtype=np.float32)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_cast_before_they_are_reshaped(dtype: str) -> None:
    b = GraphBuilder()
    graph = with_early_casts(b.graph(b.astype(b.reshape(_sums(b), (2, 2, 6)), dtype)))
    assert operators(graph) == ["dequantize", "add", "astype", "reshape"]
    assert graph.exprs[-1].dtype == dtype


def test_what_others_read_what_is_no_sum_and_other_types_stay() -> None:
    b = GraphBuilder()
    made = b.reshape(_sums(b), (24,))
    kept = b.graph((b.astype(made, "float16"), made))
    assert with_early_casts(kept).exprs == kept.exprs
    b = GraphBuilder()
    x = b.elementwise("exp", b.add(Expr(op=INPUT, shape=(4, 6), dtype="float32")))
    of_floats = b.graph(b.astype(b.reshape(x, (24,)), "float16"))
    assert with_early_casts(of_floats).exprs == of_floats.exprs
    b = GraphBuilder()
    to_integers = b.graph(b.astype(b.reshape(_sums(b), (24,)), "int32"))
    assert with_early_casts(to_integers).exprs == to_integers.exprs
