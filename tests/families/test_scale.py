"""Which graphs of scores a kernel makes a part of the exponential."""

from __future__ import annotations

import pytest

from boltgen.families.heads.scale import scale_of
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder


def binary(op: BinaryOp, value: float) -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    builder.binary(op, 0, builder.scalar(value))
    return builder.build()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (ElementwiseGraph(), 1.0),
        (binary(BinaryOp.MULTIPLY, 0.125), 0.125),
        (binary(BinaryOp.DIVIDE, 8.0), 0.125),
    ],
)
def test_a_product_with_a_positive_number_is_a_scale(graph, expected):
    assert scale_of(graph) == expected


@pytest.mark.parametrize(
    "graph",
    [
        binary(BinaryOp.MULTIPLY, -0.125),  # the greatest score would be the least
        binary(BinaryOp.MULTIPLY, 0.0),
        binary(BinaryOp.DIVIDE, 0.0),
        binary(BinaryOp.MULTIPLY, 2.0**21),
        binary(BinaryOp.ADD, 1.0),
    ],
)
def test_other_numbers_and_operations_are_none(graph):
    assert scale_of(graph) is None


def test_masked_scores_are_more_than_scaled():
    builder = ElementwiseBuilder()
    scaled = builder.binary(BinaryOp.MULTIPLY, 0, builder.scalar(0.125))
    builder.binary(BinaryOp.ADD, scaled, builder.load(LoadKind.ROW))
    assert scale_of(builder.build()) is None
