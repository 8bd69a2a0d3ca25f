"""Broadcasts sink behind what computes with them; what kernels load of each row keeps its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import sink_broadcasts
from tests.passes.differential import checked

with_late_broadcasts = checked(sink_broadcasts.with_late_broadcasts, others=True)

ROWS, KEYS = 6, 8
BATCHES = [3, symbolic(Symbol("batch", 1, 4))]


class Builder(GraphBuilder):
    """Grows masks of a batch's keys."""

    def input(self, *shape: int, dtype: str = "float16") -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def wide(self, x: int, *shape: int) -> int:
        return self.operator("broadcast_to", (x,), shape, self.dtype(x))

    def number(self, value: float, dtype: str = "float16") -> int:
        return self.constant(np.array(value, dtype))

    def where(self, seen: int, *numbers: float) -> int:
        choices = (self.number(each) for each in numbers)
        return self.operator("where", (seen, *choices), self.shape(seen), "float16")

    def any(self, x: int) -> int:
        shape = (*self.shape(x)[:-1], 1)
        return self.operator("max", (x,), shape, self.dtype(x), axis=(-1,), keepdims=True)


def _made(build: Callable[[Builder], int]) -> list[tuple[str, tuple[int, ...]]]:
    """The operators of a graph, and their shapes."""
    b = Builder()
    graph = with_late_broadcasts(b.graph(build(b)))
    return [
        (expr.op, expr.static_shape) for expr in graph.exprs if expr.op not in {INPUT, CONSTANT}
    ]


@pytest.mark.parametrize("batch", BATCHES, ids=["known", "open"])
def test_scores_are_added_to_a_mask_of_keys(batch: int) -> None:
    def build(b: Builder) -> int:
        seen = b.wide(b.input(batch, 1, 1, KEYS, dtype="bool"), batch, 1, ROWS, KEYS)
        return b.elementwise("add", b.input(batch, 4, ROWS, KEYS), b.where(seen, 0, -32768))

    assert _made(build) == [
        ("where", (batch, 1, 1, KEYS)),
        ("add", (batch, 4, ROWS, KEYS)),
    ]


@pytest.mark.parametrize("batch", BATCHES, ids=["known", "open"])
def test_what_each_row_is_multiplied_by_stays_a_column(batch: int) -> None:
    def build(b: Builder) -> int:
        seen = b.wide(b.input(batch, 1, 1, KEYS, dtype="int8"), batch, 1, ROWS, KEYS)
        has_keys = b.astype(b.any(seen), "float16")
        return b.elementwise("multiply", b.input(batch, 4, ROWS, 16), has_keys)

    assert _made(build) == [
        ("max", (batch, 1, 1, 1)),
        ("astype", (batch, 1, 1, 1)),
        ("broadcast_to", (batch, 1, ROWS, 1)),
        ("multiply", (batch, 4, ROWS, 16)),
    ]


def test_so_does_a_factor_of_the_rows_of_one_matrix() -> None:
    def build(b: Builder) -> int:
        seen = b.wide(b.input(1, KEYS, dtype="int8"), ROWS, KEYS)
        return b.elementwise("multiply", b.input(ROWS, 16), b.astype(b.any(seen), "float16"))

    assert _made(build) == [
        ("max", (1, 1)),
        ("astype", (1, 1)),
        ("broadcast_to", (ROWS, 1)),
        ("multiply", (ROWS, 16)),
    ]


@pytest.mark.parametrize("op", ["multiply", "add", "bitwise_and"], ids=["one", "zero", "true"])
def test_a_constant_of_equal_elements_that_changes_nothing_vanishes(op: str) -> None:
    dtype, number = {"multiply": ("float16", 1), "add": ("float16", 0)}.get(op, ("bool", 1))

    def build(b: Builder) -> int:
        same = b.constant(np.full((2, 1, ROWS, KEYS), number, dtype))
        return b.elementwise(op, b.input(2, 1, 1, KEYS, dtype=dtype), same)

    assert _made(build) == [("broadcast_to", (2, 1, ROWS, KEYS))]


@pytest.mark.parametrize(
    ("op", "dtype", "number"),
    [("multiply", "float16", 2), ("add", "float16", 1), ("bitwise_and", "int64", 1)],
)
def test_another_constant_stays(op: str, dtype: str, number: float) -> None:
    def build(b: Builder) -> int:
        same = b.constant(np.full((2, 1, ROWS, KEYS), number, dtype))
        return b.elementwise(op, b.input(2, 1, 1, KEYS, dtype=dtype), same)

    assert _made(build) == [(op, (2, 1, 1, KEYS)), ("broadcast_to", (2, 1, ROWS, KEYS))]


def test_truths_of_all_rows_are_a_number() -> None:
    """Where no mask hides a whole row, the factor of rows without keys is 1."""

    def build(b: Builder) -> int:
        seen = b.wide(b.constant(np.array(True)), 2, 4, ROWS, KEYS)
        has_keys = b.astype(b.astype(b.any(b.astype(seen, "int8")), "bool"), "float16")
        return b.elementwise("multiply", b.input(2, 4, ROWS, 16), has_keys)

    assert _made(build) == []


def test_a_maximum_along_what_differs_stays_one() -> None:
    def build(b: Builder) -> int:
        return b.any(b.wide(b.input(KEYS, dtype="int8"), ROWS, KEYS))

    assert _made(build) == [("broadcast_to", (ROWS, KEYS)), ("max", (ROWS, 1))]


def test_a_mask_that_is_a_result_is_as_large_as_the_model_says() -> None:
    def build(b: Builder) -> int:
        return b.where(b.wide(b.input(2, 1, 1, KEYS, dtype="bool"), 2, 1, ROWS, KEYS), 0, -1)

    assert _made(build) == [("where", (2, 1, 1, KEYS)), ("broadcast_to", (2, 1, ROWS, KEYS))]


def test_weights_keep_their_shape() -> None:
    b = Builder()
    weight = b.constant(np.ones((4, 4), np.float16))
    graph = with_late_broadcasts(b.graph(b.elementwise("multiply", weight, b.input(4, 4))))
    assert isinstance(graph, Graph)
    assert [expr.shape for expr in graph.exprs if expr.op == CONSTANT] == [(4, 4)]
