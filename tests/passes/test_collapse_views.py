"""Chains of moves: what they compute stays, and how many are left."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import Axis, Indexed, Permutation, Slice
from boltgen.graph.graph import INPUT, PART, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import collapse_views
from tests.passes.differential import checked

with_fewer_moves = checked(collapse_views.with_fewer_moves)

Array = np.ndarray[Any, Any]


def _input(builder: GraphBuilder, shape: tuple[int, ...]) -> int:
    return builder.add(Expr(op=INPUT, shape=shape, dtype="float32"))


def _ops(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op not in {"input", "constant"}]


def _same(builder: GraphBuilder, result: int) -> Graph:
    """The rewritten graph, which computes what the one of `result` does."""
    return with_fewer_moves(builder.graph(result))


@st.composite
def _chains(draw: st.DrawFn) -> tuple[GraphBuilder, int]:
    """A tensor, reshaped, transposed, sliced and indexed at random."""
    builder = GraphBuilder()
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    at = _input(builder, shape)
    for _ in range(draw(st.integers(1, 7))):
        shape = builder.shape(at)
        kind = draw(
            st.sampled_from(["reshape", "permute_dims", "take", "strided_slice", "nn.relu"])
        )
        if kind == "reshape":
            factors = [p for extent in shape for p in {4: [2, 2], 6: [2, 3]}.get(extent, [extent])]
            cuts = sorted(draw(st.sets(st.integers(1, max(1, len(factors) - 1)))) | {len(factors)})
            groups = [factors[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
            ones = [1] * draw(st.integers(0, 1))
            at = builder.reshape(at, (*(prod(group) for group in groups), *ones))
        elif kind == "permute_dims":
            at = builder.permute_dims(at, draw(st.permutations(range(len(shape)))))
        elif kind == "nn.relu":
            at = builder.elementwise("nn.relu", at)
        elif shape:
            axis = draw(st.integers(0, len(shape) - 1))
            begin = draw(st.integers(0, shape[axis] - 1))
            if kind == "take":
                number = builder.constant(np.array(begin))
                left = (*shape[:axis], *shape[axis + 1 :])
                at = builder.operator("take", (at, number), left, "float32", axis=axis)
            else:
                end = draw(st.integers(begin + 1, shape[axis]))
                left = (*shape[:axis], end - begin, *shape[axis + 1 :])
                attrs = {"axis": axis, "begin": begin, "end": end}
                at = builder.operator("strided_slice", (at,), left, "float32", **attrs)
    return builder, at


@settings(max_examples=300, deadline=None)
@given(_chains())
def test_any_chain_computes_the_same(chain: tuple[GraphBuilder, int]) -> None:
    builder, result = chain
    made = _same(builder, result)
    if "nn.relu" not in _ops(builder.graph(result)):
        assert _ops(made).count("permute_dims") <= _ops(builder.graph(result)).count("permute_dims")


def test_transposes_that_cancel_leave_nothing() -> None:
    builder = GraphBuilder()
    x = _input(builder, (2, 3, 4))
    turned = builder.permute_dims(builder.reshape(x, (2, 3, 2, 2)), (1, 2, 3, 0))
    back = builder.permute_dims(turned, (3, 0, 1, 2))
    assert _ops(_same(builder, builder.reshape(back, (6, 4)))) == ["reshape"]


def test_extents_of_one_are_not_transposed() -> None:
    builder = GraphBuilder()
    x = _input(builder, (2, 3, 1, 4))
    turned = builder.permute_dims(x, (0, 1, 3, 2))
    assert _ops(_same(builder, builder.reshape(turned, (6, 4)))) == ["reshape"]


def test_one_transpose_stays_as_its_author_wrote_it() -> None:
    builder = GraphBuilder()
    x = _input(builder, (6, 8))
    apart = builder.permute_dims(builder.reshape(x, (2, 3, 8)), (1, 0, 2))
    graph = builder.graph(apart)
    assert with_fewer_moves(graph).exprs == graph.exprs


def test_parts_of_a_split_are_slices() -> None:
    builder = GraphBuilder()
    x = _input(builder, (5, 12))
    split = builder.add(Expr(op="split", args=(x,), attrs=Axis(1)))
    parts = [
        builder.add(
            Expr(op=PART, args=(split,), shape=(5, n), dtype="float32", attrs=Indexed(index))
        )
        for index, n in enumerate((8, 4))
    ]
    back = builder.operator(
        "matmul", [parts[0], builder.constant(np.eye(8, 4, dtype=np.float32))], (5, 4), "float32"
    )
    made = _same(builder, builder.elementwise("add", back, parts[1]))
    slices = [expr.attrs for expr in made.exprs if expr.op == "strided_slice"]
    assert slices == [Slice(1, 0, 8), Slice(1, 8, 12)]
    assert "split" not in _ops(made)


def test_a_split_of_which_a_part_is_not_read_stays() -> None:
    builder = GraphBuilder()
    x = _input(builder, (5, 12))
    split = builder.add(Expr(op="split", args=(x,), attrs=Axis(1)))
    part = Expr(op=PART, args=(split,), shape=(5, 8), dtype="float32", attrs=Indexed(0))
    assert _ops(_same(builder, builder.add(part))) == ["split", "part"]


def test_a_factor_inside_of_an_extent_is_sliced_where_it_lies() -> None:
    builder = GraphBuilder()
    x = _input(builder, (3, 24))
    heads = builder.permute_dims(builder.reshape(x, (3, 2, 4, 3)), (0, 2, 1, 3))
    heads = builder.permute_dims(heads, (1, 0, 2, 3))
    keys = builder.operator(
        "take", (heads, builder.constant(np.array(-1))), (3, 2, 3), "float32", axis=0
    )
    made = _same(builder, keys)
    assert _ops(made) == ["reshape", "strided_slice"]
    (cut,) = (expr for expr in made.exprs if expr.op == "strided_slice")
    assert cut.attrs == Slice(2, 9, 12)


@pytest.mark.parametrize("is_repeated", [False, True], ids=["one weight", "repeated"])
def test_sequences_before_batches_go_behind_a_product(is_repeated: bool) -> None:
    # torch.nn.MultiheadAttention(batch_first=True) transposes its input, and its result back.
    builder = GraphBuilder()
    x = _input(builder, (2, 5, 4))
    weight = builder.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    if is_repeated:
        weight = builder.operator("broadcast_to", [weight], (5, 4, 3), "float32")
    made = builder.matmul(builder.permute_dims(x, (1, 0, 2)), weight, "float32")
    made = builder.elementwise("add", made, builder.constant(np.arange(3, dtype=np.float32)))
    made = builder.elementwise("nn.relu", made)
    assert _ops(_same(builder, builder.permute_dims(made, (1, 0, 2)))) == [
        "matmul",
        "add",
        "nn.relu",
    ]


def test_rows_that_are_wanted_as_they_were_stay_before_their_product() -> None:
    # torch.nn.MultiheadAttention without batch_first: nothing transposes the result back.
    builder = GraphBuilder()
    x = _input(builder, (2, 5, 4))
    weight = builder.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    made = builder.matmul(builder.permute_dims(x, (1, 0, 2)), weight, "float32")
    made = builder.elementwise("add", made, builder.constant(np.arange(3, dtype=np.float32)))
    assert _ops(_same(builder, made)) == ["permute_dims", "matmul", "add"]


def test_windows_stay_before_their_product() -> None:
    # The rows of a window are neighbours for the attention after it.
    builder = GraphBuilder()
    x = _input(builder, (2, 4, 4, 6))
    windows = builder.permute_dims(builder.reshape(x, (2, 2, 2, 2, 2, 6)), (0, 1, 3, 2, 4, 5))
    rows = builder.reshape(windows, (8, 4, 6))
    made = builder.matmul(
        rows, builder.constant(np.arange(18, dtype=np.float32).reshape(6, 3)), "float32"
    )
    assert _ops(_same(builder, made)) == ["reshape", "permute_dims", "reshape", "matmul"]


def test_open_extents_are_factors_too() -> None:
    batch, length = Symbol("batch", 1, 8), Symbol("length", 1, 99)
    b, s = symbolic(batch), symbolic(length)
    builder = GraphBuilder()
    x = _input(builder, (s * b, 12))
    apart = builder.permute_dims(builder.reshape(x, (s, b * 2, 6)), (1, 0, 2))
    heads = builder.permute_dims(builder.reshape(apart, (b, 2, s, 6)), (2, 0, 1, 3))
    made = _same(builder, builder.reshape(heads, (s, b, 12)))
    assert _ops(made) == ["reshape"]


def test_a_slice_of_what_is_moved_once_stays_there() -> None:
    # A rotation's halves of heads: a reader that TVM makes one kernel with, of one shape.
    builder = GraphBuilder()
    x = _input(builder, (6, 8))
    heads = builder.permute_dims(builder.reshape(x, (2, 3, 2, 4)), (0, 2, 1, 3))
    half = builder.operator(
        "strided_slice", [heads], (2, 2, 3, 2), "float32", axis=3, begin=2, end=4
    )
    graph = builder.graph(half)
    assert with_fewer_moves(graph).exprs == graph.exprs


def test_what_has_no_known_shape_is_left() -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=("n", 4), dtype="float32"))
    turned = builder.add(
        Expr(
            op="permute_dims", args=(x,), shape=(4, "n"), dtype="float32", attrs=Permutation((1, 0))
        )
    )
    back = builder.add(
        Expr(
            op="permute_dims",
            args=(turned,),
            shape=("n", 4),
            dtype="float32",
            attrs=Permutation(None),
        )
    )
    graph = builder.graph(back)
    assert with_fewer_moves(graph).exprs == graph.exprs


def test_a_weight_that_is_repeated_in_another_shape_is_one_weight() -> None:
    builder = GraphBuilder()
    x, weight = _input(builder, (2, 3, 5, 4)), _input(builder, (4, 6))
    repeated = builder.operator("broadcast_to", [weight], (2, 3, 4, 6), "float32")
    rows, copies = builder.reshape(x, (6, 5, 4)), builder.reshape(repeated, (6, 4, 6))
    made = builder.reshape(builder.matmul(rows, copies, "float32"), (2, 3, 5, 6))
    assert "broadcast_to" not in _ops(_same(builder, made))


@pytest.mark.parametrize("widths", [(0, 0), (1, 0), (1, -1)])
def test_a_pad_by_nothing_is_no_operator(widths: tuple[int, int]) -> None:
    builder = GraphBuilder()
    padded = builder.pad(_input(builder, (2, 3)), [(0, 0), widths], 0.0, "constant")
    made = with_fewer_moves(builder.graph(builder.elementwise("nn.relu", padded)))
    assert _ops(made) == (["nn.pad", "nn.relu"] if any(widths) else ["nn.relu"])
