"""Moves of whole rows: which row each one of the result is, and which moves split rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import row_permutation
from boltgen.passes.movement.row_permutation import in_order, moved_rows, moved_tensors

SHAPE = (2, 4, 6)
ROWS = in_order(SHAPE)


def _moved(
    op: str, after: tuple[int, ...], *others: np.ndarray, **attrs: object
) -> np.ndarray | None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=SHAPE, dtype="float32"))
    operands = (x, *map(builder.constant, others)) if op == "take" else (x,)
    at = builder.operator(op, operands, after, "float32", **attrs)
    graph = builder.graph(at)
    last = graph[len(graph) - 1]
    assert moved_tensors(graph, last)
    return moved_rows(graph, last, [ROWS])


def test_rows_are_numbered_as_they_lie() -> None:
    np.testing.assert_array_equal(ROWS, [[0, 1, 2, 3], [4, 5, 6, 7]])


@pytest.mark.parametrize(
    ("op", "after", "attrs", "rows"),
    [
        ("reshape", (4, 2, 6), {}, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("permute_dims", (4, 2, 6), {"axes": (1, 0, 2)}, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("strided_slice", (2, 2, 6), {"axis": 1, "begin": 1, "end": 3}, [[1, 2], [5, 6]]),
        ("strided_slice", (2, 2, 6), {"every": (1, 1, 2)}, [[1, 3], [5, 7]]),
        ("permute_dims", (4, 2, 6), {"axes": (-2, 0, -1)}, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("strided_slice", (2, 2, 6), {"axis": -2, "begin": 1, "end": 3}, [[1, 2], [5, 6]]),
        ("broadcast_to", SHAPE, {}, ROWS),
    ],
)
def test_a_move_says_which_row_each_one_is(
    op: str, after: tuple[int, ...], attrs: dict[str, object], rows: object
) -> None:
    np.testing.assert_array_equal(_moved(op, after, **attrs), rows)


def test_rows_that_constants_take() -> None:
    taken = _moved("take", (2, 3, 6), np.array([3, 0, 1]), axis=1, mode="fast")
    np.testing.assert_array_equal(taken, [[3, 0, 1], [7, 4, 5]])


@pytest.mark.parametrize(
    ("op", "after", "attrs"),
    [
        ("reshape", (2, 4, 2, 3), {}),
        ("reshape", (2, 24), {}),
        ("permute_dims", (2, 6, 4), {"axes": (0, 2, 1)}),
        ("permute_dims", (6, 4, 2), {"axes": None}),
        ("strided_slice", (2, 4, 3), {"axis": 2, "begin": 0, "end": 3}),
        ("strided_slice", (2, 4, 3), {"every": (2, 0, 2)}),
        ("strided_slice", (1, 2, 6), {}),
    ],
)
def test_moves_that_split_rows_or_are_not_known(
    op: str, after: tuple[int, ...], attrs: dict[str, object]
) -> None:
    assert _moved(op, after, **attrs) is None


@pytest.mark.parametrize("place", [-1, 4])
def test_integers_that_are_no_rows(place: int) -> None:
    assert _moved("take", (2, 1, 6), np.array([place]), axis=1, mode="fast") is None


@pytest.mark.parametrize(
    ("shape", "found"), [((2, 3), True), ((3,), True), ((), False), (None, False)]
)
def test_what_has_rows(shape: tuple[int, ...] | None, found: bool) -> None:
    assert row_permutation.is_known(Expr(op=INPUT, shape=shape, dtype="float32")) is found
    open_rows = symbolic(Symbol("rows", 1, 9))
    assert not row_permutation.is_known(Expr(op=INPUT, shape=(open_rows, 3), dtype="float32"))


def _taken_by(build: Callable[[GraphBuilder], int], dtype: str = "int64") -> np.ndarray | None:
    """The rows that integers take along the second axis."""
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=SHAPE, dtype="float32"))
    places = build(b)
    count = b.shape(places)[0]
    assert b.dtype(places) == dtype
    at = b.operator("take", (x, places), (2, count, 6), "float32", axis=1, mode="fast")
    graph = b.graph(at)
    return moved_rows(graph, graph[at], [ROWS])


def _rolled(b: GraphBuilder, shift: int) -> int:
    shifted = b.elementwise("add", b.constant(np.arange(4)), b.constant(np.array(shift)))
    return b.elementwise("mod", shifted, b.constant(np.array(4)))


def test_rows_are_taken_by_arithmetic_on_constants() -> None:
    """As exporters write a roll."""
    found = _taken_by(lambda b: _rolled(b, 3))
    np.testing.assert_array_equal(found, [[3, 0, 1, 2], [7, 4, 5, 6]])


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.add(Expr(op=INPUT, shape=(4,), dtype="int64")),
        lambda b: b.elementwise("negative", b.constant(-np.arange(4))),
        lambda b: b.elementwise(
            "add", b.constant(np.arange(4)), b.add(Expr(op=INPUT, shape=(4,), dtype="int64"))
        ),
        lambda b: b.constant(np.zeros(0, np.int64)),
    ],
    ids=["an input", "another operator", "a sum with an input", "none"],
)
def test_rows_that_other_integers_take_are_unknown(build: Callable[[GraphBuilder], int]) -> None:
    assert _taken_by(build) is None


def test_rows_that_bytes_take_are_unknown() -> None:
    assert _taken_by(lambda b: b.constant(np.arange(4, dtype=np.uint8)), "uint8") is None


def test_rows_that_are_taken_along_no_axis_are_unknown() -> None:
    assert _moved("take", (2, 6), np.array([3, 0]), axis=None, mode="fast") is None


def test_tensors_side_by_side_have_the_rows_of_both() -> None:
    b = GraphBuilder()
    x, y = (b.add(Expr(op=INPUT, shape=SHAPE, dtype="float32")) for _ in range(2))
    at = b.operator("concat", (x, y), (2, 8, 6), "float32", axis=1)
    graph = b.graph(at)
    assert moved_tensors(graph, graph[at]) == (x, y)
    found = moved_rows(graph, graph[at], [ROWS, ROWS + 8])
    np.testing.assert_array_equal(
        found, [[*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)]]
    )


@pytest.mark.parametrize("change", ["operand", "pinned"])
def test_moves_of_unknown_tensors_and_pinned_ones_move_nothing(change: str) -> None:
    b = GraphBuilder()
    shape = ("n", 4, 6) if change == "operand" else SHAPE
    x = b.add(Expr(op=INPUT, shape=shape, dtype="float32"))
    is_pinned = change == "pinned"
    at = b.add(Expr(op="reshape", args=(x,), shape=SHAPE, dtype="float32", pinned=is_pinned))
    graph = b.graph(at)
    assert moved_tensors(graph, graph[at]) == ()
