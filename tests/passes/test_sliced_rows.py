"""Rows of slices in graphs: where they lie, and what a kernel does to them itself."""

from __future__ import annotations

import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.anchor import Anchor, match_anchor
from boltgen.passes.regions.broadcast_kind import slice_span
from boltgen.passes.regions.epilogue_walk import grow
from boltgen.passes.regions.sliced_rows import SliceRows, slice_rows
from boltgen.passes.regions.tail import Tail
from boltgen.problems.region import RowView
from tests.passes.carved import carve

B, S, N = 3, 6, 8
OPEN = symbolic(Symbol("batch", 1, 9))
SLICE, POSITION = LoadKind.SLICE_ROW, LoadKind.POSITION_ROW


@pytest.mark.parametrize(
    ("shape", "out", "found"),
    [
        ((B, 1, N), (B, S, N), (SLICE, S)),
        ((B, 1, 1, N), (B, 4, S, N), (SLICE, 4 * S)),
        ((B, 4, 1, N), (B, 4, S, N), (SLICE, S)),
        ((OPEN, 1, N), (OPEN, S, N), (SLICE, S)),
        ((1, S, N), (B, S, N), (POSITION, S)),
        ((S, N), (OPEN, S, N), (POSITION, S)),
        ((B, OPEN, N), (4, B, OPEN, N), (POSITION, B * OPEN)),
        ((1, 1, S, N), (B, 4, S, N), (POSITION, S)),
        ((B, 4, 1, N), (2, B, 4, S, N), None),
        ((S, 1), (B, S, N), None),
        ((B, 1, 1), (B, S, N), None),
        ((B, S, 1), (B, S, N), None),
        ((B, N), (B, N), None),
        ((N,), (B, S, N), None),
        ((1, B, 1, N), (B, S, N), None),
    ],
)
def test_an_operand_with_a_row_for_each_slice_or_position(
    shape: tuple[int, ...], out: tuple[int, ...], found: tuple[LoadKind, int] | None
) -> None:
    assert slice_span(shape, out) == found


class Net:
    """A product of (B, S, N), and rows for its images."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        x, w = self.input((B * S, 16)), self.input((16, N))
        flat = self.builder.operator("matmul", (x, w), (B * S, N), "float16")
        self.product = flat
        self.made = self.builder.reshape(flat, (B, S, N))

    def input(self, shape: tuple[int, ...]) -> int:
        return self.builder.add(Expr(op=INPUT, shape=shape, dtype="float16"))

    def one(self) -> int:
        return self.builder.add(Expr(op=CONSTANT, shape=(), dtype="float16", scalar=1.0))

    def part(self, x: int, axis: int, begin: int, end: int) -> int:
        shape = list(self.builder.shape(x))
        shape[axis] = end - begin
        attrs = {"axis": axis, "begin": begin, "end": end}
        return self.builder.operator("strided_slice", (x,), tuple(shape), "float16", **attrs)

    def multiplied(self, rows: int, by: int | None = None) -> int:
        at = self.made if by is None else by
        return self.builder.operator("multiply", (at, rows), (B, S, N), "float16")

    def grow(self, *results: int) -> tuple[Graph, Tail]:
        graph = self.builder.graph(results if len(results) > 1 else results[0])
        carve(graph, Symbols(()))  # which compares what the region computes
        anchor = match_anchor(graph, self.product)
        assert isinstance(anchor, Anchor)
        return graph, grow(graph, anchor)


@pytest.mark.parametrize("axis", [1, 2])
def test_a_part_of_longer_rows_is_read_from_there(axis: int) -> None:
    """Columns of a matrix, and one of several rows of each image."""
    net = Net()
    base = net.input((B, 6, N) if axis == 1 else (B, 1, 6 * N))
    part = net.part(base, axis, *((2, 3) if axis == 1 else (2 * N, 3 * N)))
    raised = net.builder.operator("add", (net.one(), part), (B, 1, N), "float16")
    _, tail = net.grow(net.multiplied(raised))
    assert [load.kind for load in tail.epilogue.loads] == [LoadKind.SLICE_ROW]
    assert tail.epilogue.describe() == "multiply(acc, add(1, slice_row0))"
    (operand,) = tail.operands
    assert (operand.expr, operand.view) == (base, RowView(offset=2 * N, columns=6 * N))
    assert tail.inlined == (part, raised)
    assert tail.slice_rows == S


def test_what_others_read_too_is_loaded_as_it_is() -> None:
    net = Net()
    part = net.part(net.input((B, 1, 6 * N)), 2, 0, N)
    graph, tail = net.grow(net.multiplied(part), net.builder.elementwise("exp", part))
    assert slice_rows(graph, part) == SliceRows(part)
    assert [(each.expr, each.view) for each in tail.operands] == [(part, None)]
    assert tail.inlined == ()


def test_parts_that_are_less_aligned_than_long_are_not_read_in_place() -> None:
    net = Net()
    part = net.part(net.input((B, 1, 6 * N)), 2, 4, N + 4)
    graph, _ = net.grow(net.multiplied(part))
    assert slice_rows(graph, part) == SliceRows(part)


def test_a_part_of_several_rows_is_no_run_of_each_row() -> None:
    net = Net()
    part = net.part(net.input((B, 2 * S, N)), 1, 0, S)
    graph, _ = net.grow(net.multiplied(part))
    assert slice_rows(graph, part) == SliceRows(part)
    split = net.part(net.input((B, 6, S, N)), 1, 2, 3)
    graph = net.builder.graph(net.multiplied(net.builder.reshape(split, (B, S, N))))
    (at,) = (index for index, expr in enumerate(graph.exprs) if expr.op == "strided_slice")
    assert slice_rows(graph, at) == SliceRows(at)


def test_rows_that_an_input_has_are_raised_in_the_kernel() -> None:
    net = Net()
    rows = net.input((B, 1, N))
    raised = net.builder.elementwise("add", rows, net.one())
    graph, tail = net.grow(net.multiplied(raised))
    assert slice_rows(graph, raised) == SliceRows(rows, None, (raised,))
    assert tail.epilogue.describe() == "multiply(acc, add(slice_row0, 1))"


@pytest.mark.parametrize("name", ["exp", "nn.relu"])
def test_rows_of_other_operators_are_loaded_as_they_are(name: str) -> None:
    """A kernel that computes them reads them in its epilogue."""
    net = Net()
    made = net.builder.elementwise(name, net.input((B, 1, N)))
    raised = net.builder.elementwise("add", made, net.one())
    graph, tail = net.grow(net.multiplied(raised))
    assert slice_rows(graph, raised) == SliceRows(raised)
    assert tail.inlined == ()


def test_dimensions_of_one_are_dropped_on_the_way_to_a_part() -> None:
    net = Net()
    part = net.part(net.input((B, 6, N)), 1, 5, 6)
    flat = net.builder.reshape(part, (B, N))
    rows = net.builder.reshape(net.builder.elementwise("add", flat, net.one()), (B, 1, N))
    graph, _ = net.grow(net.multiplied(rows))
    found = slice_rows(graph, rows)
    assert found.view == RowView(offset=5 * N, columns=6 * N)
    assert len(found.members) == 4


def test_rows_of_which_a_reshape_joins_several_are_loaded_as_they_are() -> None:
    net = Net()
    part = net.part(net.input((2 * B, 3 * N)), 1, 0, N // 2)
    rows = net.builder.reshape(part, (B, 1, N))
    graph, _ = net.grow(net.multiplied(rows))
    assert slice_rows(graph, rows) == SliceRows(rows)


def test_two_parts_that_are_no_run_of_a_row_are_loaded_as_they_are() -> None:
    net = Net()
    part = net.part(net.input((B, 6, N // 2)), 1, 2, 4)
    rows = net.builder.reshape(part, (B, 1, N))
    graph, _ = net.grow(net.multiplied(rows))
    assert slice_rows(graph, rows) == SliceRows(rows)


def test_slices_of_images_are_loaded_as_they_are() -> None:
    net = Net()
    part = net.part(net.input((2 * B, 1, N)), 0, B, 2 * B)
    graph, _ = net.grow(net.multiplied(part))
    assert slice_rows(graph, part) == SliceRows(part)


def test_all_slices_of_a_tail_are_alike() -> None:
    """Rows of images, then of halves of them: the second one ends the region."""
    net = Net()
    first = net.multiplied(net.input((B, 1, N)))
    halves = net.builder.reshape(first, (B, 1, S, N))
    other = net.input((B, 1, 1, N))
    same = net.builder.operator("add", (halves, other), (B, 1, S, N), "float16")
    _, tail = net.grow(same)
    assert tail.output == same
    half = (2 * B, S // 2, N)
    smaller = net.builder.reshape(same, half)
    last = net.builder.operator("add", (smaller, net.input((2 * B, 1, N))), half, "float16")
    _, tail = net.grow(last)
    assert tail.output == same


def test_a_part_of_computed_rows_is_read_from_there() -> None:
    net = Net()
    rows = net.builder.elementwise("nn.relu", net.input((B, 1, 6 * N)))
    part = net.part(rows, 2, N, 2 * N)
    graph, _ = net.grow(net.multiplied(part))
    assert slice_rows(graph, part) == SliceRows(rows, RowView(offset=N, columns=6 * N), (part,))
