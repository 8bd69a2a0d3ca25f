"""Which products of joined rows are of the tensor as it is, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import unflatten_matmul
from boltgen.passes.outline import Symbols
from boltgen.problems.region import HeadView
from tests.passes.carved import carve
from tests.passes.differential import checked

products_of_open_rows = checked(unflatten_matmul.products_of_open_rows, others=True)

BATCH, ROWS = symbolic(Symbol("b", 1, 4)), symbolic(Symbol("s", 8, 64))
HEADS, DEPTH = 3, 16
WIDTH = HEADS * DEPTH


class Builder(GraphBuilder):
    """Grows products whose rows are joined, as torch.export writes them."""

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype="float16"))

    def weight(self, *shape: int) -> int:
        return self.constant(np.full(shape, 0.5, np.float16))

    def linear(self, x: int, columns: int) -> int:
        """(rows, width) to (rows, columns), with a bias."""
        product = self.matmul(x, self.weight(self.shape(x)[-1], columns), "float16")
        return self.elementwise("add", product, self.weight(columns))


def _made(build: Callable[[Builder], Any]) -> Graph:
    b = Builder()
    return products_of_open_rows(b.graph(build(b)))


def _shapes(graph: Graph) -> list[tuple[str, object]]:
    return [(e.op, e.shape) for e in graph.exprs if e.op not in {INPUT, "constant"}]


def test_a_product_and_what_follows_have_the_dimensions_of_their_input() -> None:
    def build(b: Builder) -> int:
        flat = b.astype(b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH)), "float16")
        made = b.elementwise("nn.gelu", b.linear(flat, 2 * WIDTH))
        return b.reshape(b.linear(made, WIDTH), (BATCH, ROWS, WIDTH))

    wide, shape = (BATCH, ROWS, 2 * WIDTH), (BATCH, ROWS, WIDTH)
    assert _shapes(_made(build)) == [
        ("astype", shape),
        ("matmul", wide),
        ("add", wide),
        ("nn.gelu", wide),
        ("matmul", shape),
        ("add", shape),
    ]


def test_one_open_dimension_is_enough() -> None:
    def build(b: Builder) -> int:
        flat = b.reshape(b.input(BATCH, 30, WIDTH), (BATCH * 30, WIDTH))
        return b.reshape(b.linear(flat, WIDTH), (BATCH, 30, HEADS, DEPTH))

    shapes = [shape for _, shape in _shapes(_made(build))]
    assert shapes == [(BATCH, 30, WIDTH)] * 2 + [(BATCH, 30, HEADS, DEPTH)]


def test_who_reads_a_matrix_as_it_was_has_it_so() -> None:
    def build(b: Builder) -> tuple[int, int]:
        flat = b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH))
        made = b.linear(flat, WIDTH)
        sums = b.operator("sum", (made,), (WIDTH,), "float16", axis=(0,), keepdims=False)
        return made, sums

    graph = _made(build)
    flat = BATCH * ROWS, WIDTH
    assert _shapes(graph)[2:] == [("reshape", flat), ("sum", (WIDTH,))]
    made, _ = graph.results
    assert graph[made].shape == flat, "a result keeps its shape"


def _known(b: Builder) -> int:
    return b.linear(b.reshape(b.input(2, 40, WIDTH), (80, WIDTH)), WIDTH)


def _split_columns(b: Builder) -> int:
    return b.linear(b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS * HEADS, DEPTH)), DEPTH)


def _of_more_matrices(b: Builder) -> int:
    flat = b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH))
    return b.matmul(flat, b.input(5, WIDTH, WIDTH), "float16")


def _added_rows(b: Builder) -> int:
    flat = b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH))
    return b.elementwise("add", flat, b.input(BATCH * ROWS, WIDTH))


def _of_two_origins(b: Builder) -> int:
    flat = b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH))
    other = b.reshape(b.input(ROWS, BATCH, WIDTH), (BATCH * ROWS, WIDTH))
    return b.elementwise("add", flat, other)


@pytest.mark.parametrize(
    "build", [_known, _split_columns, _of_more_matrices, _added_rows, _of_two_origins]
)
def test_what_stays_as_it_is(build: Callable[[Builder], int]) -> None:
    b = Builder()
    graph = b.graph(build(b))
    assert _shapes(products_of_open_rows(graph)) == _shapes(graph)


def test_heads_are_cut_out_of_columns_of_a_product_of_open_rows() -> None:
    def build(b: Builder) -> int:
        flat = b.reshape(b.input(BATCH, ROWS, WIDTH), (BATCH * ROWS, WIDTH))
        whole = b.linear(flat, 3 * WIDTH)

        def heads(part: int, axes: tuple[int, ...]) -> int:
            cut = {"axis": 1, "begin": part * WIDTH, "end": (part + 1) * WIDTH}
            shape = (BATCH * ROWS, WIDTH)
            x = b.operator("strided_slice", (whole,), shape, "float16", **cut)
            return b.permute_dims(b.reshape(x, (BATCH, ROWS, HEADS, DEPTH)), axes)

        scores = b.matmul(heads(0, (0, 2, 1, 3)), heads(1, (0, 2, 3, 1)), "float32")
        weights = b.operator("nn.softmax", (scores,), b.shape(scores), "float32", axis=-1)
        return b.matmul(b.astype(weights, "float16"), heads(2, (0, 2, 1, 3)), "float16")

    graph, carved = carve(_made(build), Symbols(()))
    assert [expr.op for expr in graph.exprs if expr.op not in {INPUT, "constant"}] == ["region"] * 2
    region = carved[-1].region
    views = [region.a_view, *(roles.b_view for roles in region.layers)]
    assert views == [
        HeadView(heads=HEADS, inner=(3 * WIDTH,), offset=part * WIDTH, stride=DEPTH)
        for part in range(3)
    ]
