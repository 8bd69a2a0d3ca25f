"""Einsum in a Relax module, which TVM computes: the report counts its operations."""

from __future__ import annotations

import pytest
from tvm import relax

from boltgen.frontend.relax import annotate


@pytest.mark.parametrize(
    ("subscripts", "shapes", "flops"),
    [
        ("ij,kj->ik", [(3, 4), (5, 4)], 2 * 3 * 5 * 4),
        ("...ij,jk->...ik", [(2, 3, 4), (4, 5)], 2 * 2 * 3 * 5 * 4),
        ("i,j->ij", [(3,), (4,)], 0),
    ],
)
def test_an_einsum_is_a_product_where_it_sums(
    subscripts: str, shapes: list[tuple[int, ...]], flops: int
) -> None:
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(relax.op.einsum(tuple(inputs), subscripts)))
    placed = next(each for each in annotate(builder.get()).placements if each.operator == "einsum")
    assert placed.flops == flops
    assert "no kernel computes" in placed.reason
