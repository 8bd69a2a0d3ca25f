"""Which moves and masks become one, and which stay apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boltgen.graph.facts import permutation
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.arithmetic import cse
from tests.passes.differential import checked

with_single_reshapes = checked(cse.with_single_reshapes, others=True)
without_repeated = checked(cse.without_repeated, others=True)


def _input(b: GraphBuilder, *shape: int | str) -> int:
    return b.add(Expr(op=INPUT, shape=shape, dtype="float32"))


def _moves(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op != INPUT]


def test_a_chain_of_equal_moves_is_one() -> None:
    b = GraphBuilder()
    x = _input(b, 2, 3, 4)
    ends = [b.astype(b.reshape(x, (6, 4)), "float16") for _ in range(3)]
    graph = without_repeated(
        b.graph(tuple(b.operator("nn.relu", (end,), (6, 4), "float16") for end in ends))
    )
    assert _moves(graph) == ["reshape", "astype", "nn.relu", "nn.relu", "nn.relu"]
    assert len(set(graph.results)) == 3, "what reads them stays apart"
    assert [graph[result].args for result in graph.results] == [(2,)] * 3


def test_a_transpose_is_another_by_other_axes() -> None:
    b = GraphBuilder()
    x = _input(b, 4, 4, 4)
    axes = ((1, 0, 2), (2, 1, 0), (1, 0, 2))
    graph = without_repeated(b.graph(tuple(b.permute_dims(x, each) for each in axes)))
    assert [permutation(expr) for expr in graph.exprs[1:]] == [(1, 0, 2), (2, 1, 0)]
    assert graph.results == (1, 2, 1)


def test_other_types_shapes_and_values_are_others() -> None:
    b = GraphBuilder()
    x, y = _input(b, 2, 6), _input(b, 2, 6)
    made = (
        *(b.astype(each, dtype) for each in (x, y) for dtype in ("float16", "float64")),
        *(b.reshape(x, shape) for shape in ((3, 4), (4, 3))),
    )
    assert len(_moves(without_repeated(b.graph(made)))) == len(made)


def _mask(b: GraphBuilder, seen: int, lowest: float) -> int:
    zero, low = (b.constant(np.array(each, np.float16)) for each in (0, lowest))
    return b.operator("where", (seen, zero, low), (2, 6), "float16")


def test_a_mask_of_each_layer_is_one() -> None:
    b = GraphBuilder()
    seen = b.add(Expr(op=INPUT, shape=(2, 6), dtype="bool"))
    graph = without_repeated(b.graph(tuple(_mask(b, seen, each) for each in (-8, -9, -8))))
    first, second, third = graph.results
    assert first == third != second
    assert [expr.scalar for expr in graph.exprs if expr.op == CONSTANT] == [0, -8, -9]


def test_numbers_that_floats_do_not_tell_apart_are_others() -> None:
    b = GraphBuilder()
    most = 1 << 53
    made = tuple(b.constant(np.array(each)) for each in (most, most + 1, 0.0, -0.0))
    assert len(set(without_repeated(b.graph(made)).results)) == 4


def test_arithmetic_is_computed_again() -> None:
    b = GraphBuilder()
    x = _input(b, 2, 6)
    made = tuple(b.elementwise("multiply", x, x) for _ in range(2))
    assert len(_moves(without_repeated(b.graph(made)))) == 2


def test_a_norms_difference_is_one() -> None:
    b = GraphBuilder()
    x = _input(b, 2, 6)
    mean = b.operator("mean", (x,), (2, 1), "float32", axis=(1,), keepdims=True)
    made = tuple(b.elementwise("subtract", x, mean) for _ in range(2))
    assert _moves(without_repeated(b.graph(made))) == ["mean", "subtract"]


def test_moves_of_open_sizes_are_one_where_their_shape_is_known() -> None:
    b = GraphBuilder()
    x = _input(b, "n", 6)
    named = [b.add(Expr(op="reshape", args=(x,), shape=("n", 2, 3), dtype="float32")) for _ in "ab"]
    unknown = [b.add(Expr(op="reshape", args=(x,), dtype="float32")) for _ in "ab"]
    graph = cse.without_repeated(b.graph((*named, *unknown)))  # one that cannot be computed
    assert graph.results == (1, 1, 2, 3)


def test_what_is_pinned_stays() -> None:
    b = GraphBuilder()
    x = _input(b, 2, 6)
    b.astype(x, "float16")
    b.exprs.append(replace(b[1], pinned=True))
    graph = without_repeated(b.graph((1, 2)))
    assert _moves(graph) == ["astype", "astype"]


def test_reshapes_in_a_row_are_one_of_the_first_s_operand() -> None:
    b = GraphBuilder()
    x = _input(b, 2, 6)
    first = b.reshape(x, (2, 2, 3))
    second = b.reshape(first, (4, 3))
    back = b.reshape(second, (2, 6))
    graph = with_single_reshapes(
        b.graph((first, b.operator("nn.relu", (back,), (2, 6), "float32")))
    )
    assert _moves(graph) == ["reshape", "nn.relu"]
    assert [each.args for each in graph.exprs[1:]] == [(0,), (0,)]
    graph = with_single_reshapes(b.graph((second,)))
    assert [(each.args, each.shape) for each in graph.exprs[1:]] == [((0,), (4, 3))]
    assert graph[1].origin is None, "the author's may take extents from its own operand"
