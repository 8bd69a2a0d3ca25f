"""Which operators around attention become strides of its kernel, and which stay."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest

from boltgen.graph.attributes import NONE
from boltgen.graph.graph import CONSTANT, INPUT, REGION, Graph, GraphBuilder
from boltgen.ir.dtypes import Layout
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes import outline
from boltgen.passes.outline import CarvedRegion, Symbols
from boltgen.problems.region import HeadView
from tests.passes.carved import carve
from tests.passes.test_attention import Builder

BATCH, HEADS, ROWS, DEPTH = 2, 3, 40, 16
WIDTH = HEADS * DEPTH
FORWARD, KEYS_LAST = (0, 2, 1, 3), (0, 2, 3, 1)
# Operands by what is done to the packed rows, or to a tensor of their own.
Cut = Callable[[Builder, int, int], int]


def _columns(b: Builder, x: int, begin: int, count: int) -> int:
    shape, end = b.shape(x), begin + count
    last = len(shape) - 1
    cut = (*shape[:-1], count)
    return b.operator("strided_slice", (x,), cut, "float16", axis=last, begin=begin, end=end)


def _of_rows(b: Builder, x: int, part: int, batch: int = BATCH, rows: int = ROWS) -> int:
    """Part 0 to 2 of rows of (queries, keys, values), as (batch, rows, heads, depth)."""
    return b.reshape(_columns(b, x, part * WIDTH, WIDTH), (batch, rows, HEADS, DEPTH))


def _attention(b: Builder, q: int, k: int, v: int) -> int:
    return b.matmul(b.softmax(b.matmul(q, k, "float16")), v, "float16")


def _carved(build: Callable[[Builder], int]) -> tuple[Graph, CarvedRegion]:
    b = Builder()
    before = b.graph(build(b))
    # A slice of unknown places has no value.
    has_values = all(expr.attrs != NONE for expr in before.exprs if expr.op == "strided_slice")
    graph, (carved,) = (carve if has_values else outline.carve)(before, Symbols(()))
    return graph, carved


def _operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op not in {INPUT, CONSTANT, REGION}]


def _views(carved: CarvedRegion) -> list[HeadView | None]:
    region = carved.region
    return [region.a_view, *(roles.b_view for roles in region.layers), region.d_view]


def _view(offset: int = 0, inner: tuple[int, ...] = (3 * WIDTH,), stride: int = DEPTH) -> HeadView:
    return HeadView(heads=HEADS, inner=inner, offset=offset, stride=stride)


_DENSE = _view(inner=(HEADS, DEPTH))


@pytest.mark.parametrize("is_twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("is_flat", [False, True], ids=["sequences", "flat"])
def test_heads_of_joined_rows_are_read_and_written_in_place(is_twice: bool, is_flat: bool) -> None:
    outer = (BATCH * ROWS,) if is_flat else (BATCH, ROWS)

    def build(b: Builder) -> int:
        x = b.input(*outer, 3 * WIDTH)
        q, v = (b.permute_dims(_of_rows(b, x, part), FORWARD) for part in (0, 2))
        k = b.permute_dims(_of_rows(b, x, 1), FORWARD if is_twice else KEYS_LAST)
        k = b.permute_dims(k, (0, 1, 3, 2)) if is_twice else k
        d = b.permute_dims(_attention(b, q, k, v), FORWARD)
        return b.reshape(d, (BATCH, ROWS, WIDTH))

    graph, carved = _carved(build)
    assert _operators(graph) == ["reshape"]
    assert _views(carved) == [_view(), _view(WIDTH), _view(2 * WIDTH), _DENSE]
    assert (carved.region.parameter_count, carved.region.heads) == (1, HEADS)
    scores, _ = carved.region.workload.layers
    assert scores.problem.gemm.b_layout is Layout.COLUMN
    # Relay is told what the region computes in those operators.
    assert [expr.shape for expr in carved.body.exprs if expr.op == INPUT] == [(*outer, 3 * WIDTH)]
    assert _operators(carved.body).count("strided_slice") == 3


def test_heads_may_join_the_batch() -> None:
    def build(b: Builder) -> int:
        def heads(x: int) -> int:
            return b.reshape(b.permute_dims(x, FORWARD), (BATCH * HEADS, ROWS, DEPTH))

        q, k, v = (heads(b.input(BATCH, ROWS, HEADS, DEPTH)) for _ in range(3))
        d = _attention(b, q, b.permute_dims(k, (0, 2, 1)), v)
        return b.permute_dims(b.reshape(d, (BATCH, HEADS, ROWS, DEPTH)), FORWARD)

    graph, carved = _carved(build)
    assert _operators(graph) == []
    assert _views(carved) == [_DENSE] * 4


def test_rows_may_have_those_of_all_sequences_side_by_side() -> None:
    # torch.nn.MultiheadAttention, unless batch_first says otherwise: (S, B, 3 H D).
    def build(b: Builder) -> int:
        x = b.reshape(b.input(ROWS, BATCH, 3 * WIDTH), (ROWS * BATCH, 3 * WIDTH))
        parts = (
            b.reshape(_columns(b, x, part * WIDTH, WIDTH), (ROWS, BATCH, HEADS, DEPTH))
            for part in range(3)
        )
        q, k, v = (b.permute_dims(part, (1, 2, 0, 3)) for part in parts)
        d = _attention(b, q, b.permute_dims(k, (0, 1, 3, 2)), v)
        return b.permute_dims(d, (2, 0, 1, 3))

    graph, carved = _carved(build)
    assert _operators(graph) == []
    inside = [replace(_view(part * WIDTH), rows_first=True) for part in range(3)]
    # Alone the result could be that of one sequence of all heads.
    assert _views(carved) == [*inside, replace(_view(inner=(HEADS, DEPTH)), rows_first=True)]


def test_query_key_and_value_may_lie_together_in_each_head() -> None:
    def build(b: Builder) -> int:
        x = b.reshape(b.input(BATCH, ROWS, 3 * WIDTH), (BATCH, ROWS, HEADS, 3 * DEPTH))
        parts = (_columns(b, x, part * DEPTH, DEPTH) for part in range(3))
        q, k, v = (
            b.permute_dims(part, order)
            for part, order in zip(parts, (FORWARD, KEYS_LAST, FORWARD), strict=True)
        )
        return _attention(b, q, k, v)

    graph, carved = _carved(build)
    assert _operators(graph) == []
    expected = [_view(part * DEPTH, stride=3 * DEPTH) for part in range(3)]
    assert _views(carved) == [*expected, None]


def test_sizes_may_be_symbolic() -> None:
    batch, rows = symbolic(Symbol("b", 1, 4)), symbolic(Symbol("s", 8, 64))

    def build(b: Builder) -> int:
        x = b.input(batch, rows, 3 * WIDTH)
        orders = (FORWARD, KEYS_LAST, FORWARD)
        q, k, v = (
            b.permute_dims(_of_rows(b, x, part, batch, rows), order)
            for part, order in enumerate(orders)
        )
        return b.permute_dims(_attention(b, q, k, v), FORWARD)

    graph, carved = _carved(build)
    assert _operators(graph) == []
    assert _views(carved) == [_view(), _view(WIDTH), _view(2 * WIDTH), _DENSE]


def test_symbolic_rows_are_read_off_a_tensor_that_has_them_apart() -> None:
    """Of rows and sequences that are one extent the call would know neither."""
    batch, rows = symbolic(Symbol("b", 1, 4)), symbolic(Symbol("s", 8, 64))

    def build(b: Builder) -> int:
        flat = b.input(batch * rows, WIDTH)
        q = b.permute_dims(b.reshape(flat, (batch, rows, HEADS, DEPTH)), FORWARD)
        k, v = (b.input(batch, HEADS, *each) for each in ((DEPTH, rows), (rows, DEPTH)))
        return _attention(b, q, k, v)

    graph, carved = _carved(build)
    assert _operators(graph) == ["reshape"]
    assert _views(carved) == [_DENSE, None, None, None]


def _heads_first(b: Builder) -> tuple[int, int, int]:
    shape = (BATCH, HEADS, ROWS, DEPTH)
    return b.input(*shape), b.permute_dims(b.input(*shape), (0, 1, 3, 2)), b.input(*shape)


def _with_query(make: Callable[[Builder], int]) -> Callable[[Builder], int]:
    def build(b: Builder) -> int:
        _, k, v = _heads_first(b)
        return _attention(b, make(b), k, v)

    return build


def _sequences_inside(b: Builder) -> int:
    return b.permute_dims(b.input(ROWS, BATCH, HEADS, DEPTH), (1, 2, 0, 3))


def test_a_result_that_is_computed_with_before_it_is_moved_stays() -> None:
    def build(b: Builder) -> int:
        q, k, v = (b.input(BATCH, HEADS, ROWS, DEPTH) for _ in range(3))
        d = _attention(b, q, b.permute_dims(k, (0, 1, 3, 2)), v)
        turned = b.operator("flip", (d,), b.shape(d), "float16", axis=2)
        return b.permute_dims(turned, FORWARD)

    graph, carved = _carved(build)
    assert _operators(graph) == ["flip", "permute_dims"]
    assert carved.region.d_view is None


def _columns_apart(b: Builder) -> int:
    return b.permute_dims(b.input(BATCH, ROWS, DEPTH, HEADS), (0, 3, 1, 2))


def _odd_offset(b: Builder) -> int:
    x = _columns(b, b.input(BATCH, ROWS, WIDTH + 8), 4, WIDTH)
    return b.permute_dims(b.reshape(x, (BATCH, ROWS, HEADS, DEPTH)), FORWARD)


def _odd_rows(b: Builder) -> int:
    x = _columns(b, b.input(BATCH, ROWS, WIDTH + 4), 0, WIDTH)
    return b.permute_dims(b.reshape(x, (BATCH, ROWS, HEADS, DEPTH)), FORWARD)


def _author_slice(b: Builder) -> int:
    wide = b.input(BATCH, 2 * ROWS, HEADS, DEPTH)
    every_other = b.operator("strided_slice", (wide,), (BATCH, ROWS, HEADS, DEPTH), "float16")
    return b.permute_dims(every_other, FORWARD)


def _rows_joined(b: Builder) -> int:
    """Rows of another length than the heads'."""
    moved = b.permute_dims(b.input(BATCH, DEPTH, HEADS, ROWS), FORWARD)
    return b.reshape(moved, (BATCH, HEADS, ROWS, DEPTH))


def test_sequences_may_lie_side_by_side_too() -> None:
    graph, carved = _carved(_with_query(_sequences_inside))
    assert _operators(graph) == []
    inner = (BATCH, HEADS, DEPTH)
    assert carved.region.a_view == HeadView(
        heads=BATCH * HEADS, inner=inner, offset=0, stride=DEPTH
    )


@pytest.mark.parametrize(
    "make",
    [_columns_apart, _rows_joined],
)
def test_what_is_no_view_stays(make: Callable[[Builder], int]) -> None:
    graph, carved = _carved(_with_query(make))
    assert "permute_dims" in _operators(graph)
    assert carved.region.views == ()


@pytest.mark.parametrize("make", [_odd_offset, _odd_rows, _author_slice])
def test_a_slice_stays_where_vectors_do_not_fit_or_it_is_not_known(
    make: Callable[[Builder], int],
) -> None:
    graph, carved = _carved(_with_query(make))
    assert _operators(graph) == ["strided_slice"]
    assert carved.region.a_view is not None
    assert carved.region.a_view.offset == 0
    assert carved.region.a_view.row == WIDTH


def test_the_tensor_before_another_attention_s_transposition_is_not_read() -> None:
    def build(b: Builder) -> int:
        context = b.permute_dims(_attention(b, *_heads_first(b)), FORWARD)
        return _attention(b, b.permute_dims(context, FORWARD), *_heads_first(b)[1:])

    b = Builder()
    graph, (first, second) = carve(b.graph(build(b)), Symbols(()))
    assert _operators(graph) == []
    assert (first.region.d_view, second.region.a_view) == (_DENSE, _DENSE)


def test_what_another_region_s_call_transforms_is_not_read() -> None:
    """Image features are an output of the model, and a query besides."""
    features, pixels = 16, 5 * 8

    def build(b: Builder) -> tuple[int, int]:
        image, weight = b.input(1, 5, 8, 8), b.input(features, 1, 1, 8)
        attrs = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        sizes = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
        shape = (1, 5, 8, features)
        made = b.operator("nn.conv2d", (image, weight), shape, "float16", **attrs, **sizes)
        y = b.permute_dims(made, (0, 3, 1, 2))
        query = b.permute_dims(b.reshape(y, (1, features, pixels)), (0, 2, 1))
        key = b.permute_dims(b.input(1, pixels, features), (0, 2, 1))
        return y, _attention(b, query, key, b.input(1, pixels, features))

    b = Builder()
    graph, carved = carve(b.graph(build(b)), Symbols(()))
    (attention,) = (each.region for each in carved if each.region.workload.is_fused)
    assert attention.a_view is None
    assert _operators(graph) == ["reshape", "permute_dims"]


def test_a_result_that_is_read_before_it_is_transposed_is_dense() -> None:
    def build(b: GraphBuilder) -> tuple[int, int]:
        assert isinstance(b, Builder)
        d = _attention(b, *_heads_first(b))
        return d, b.permute_dims(d, FORWARD)

    b = Builder()
    graph, (carved,) = carve(b.graph(build(b)), Symbols(()))
    assert carved.region.views == ()
    assert _operators(graph) == ["permute_dims"]


def test_a_region_has_one_number_of_heads() -> None:
    """The query is (batch 2, heads 3); the key is 6 heads of one sequence."""

    def build(b: Builder) -> int:
        q = b.reshape(
            b.permute_dims(b.input(BATCH, ROWS, HEADS, DEPTH), FORWARD),
            (BATCH * HEADS, ROWS, DEPTH),
        )
        k = b.permute_dims(b.input(ROWS, BATCH * HEADS, DEPTH), (1, 2, 0))
        return _attention(b, q, k, b.input(BATCH * HEADS, ROWS, DEPTH))

    graph, carved = _carved(build)
    assert len(carved.region.views) == 1
    assert carved.region.heads in {HEADS, BATCH * HEADS}
    assert "permute_dims" in _operators(graph)
    assert prod(carved.region.views[0].inner) == BATCH * WIDTH


def test_heads_that_share_key_and_value_are_rows_of_one_product() -> None:
    def build(b: Builder) -> int:
        q = b.permute_dims(b.input(BATCH, ROWS, HEADS, DEPTH), FORWARD)
        return _attention(b, q, b.input(1, 1, DEPTH, ROWS), b.input(1, 1, ROWS, DEPTH))

    graph, carved = _carved(build)
    assert carved.region.views == ()
    assert _operators(graph) == ["permute_dims"]


def test_heads_that_a_residual_reads_too_are_a_tensor() -> None:
    def build(b: Builder) -> int:
        q = b.permute_dims(b.input(BATCH, ROWS, HEADS, DEPTH), FORWARD)
        return b.elementwise("add", _attention(b, q, *_heads_first(b)[1:]), q)

    graph, carved = _carved(build)
    assert carved.region.views == ()
    assert _operators(graph) == ["permute_dims"]


# How an operand of heads, (batch, heads, rows, depth), may be made: of a tensor of this shape, by
# these steps. A step without a name is a permutation.
_B, _H, _S, _D = 2, 4, 6, 8
Steps = tuple[tuple[str, tuple[int, ...]], ...]
_OPERANDS: dict[str, tuple[tuple[int, ...], Steps]] = {
    "dense": ((_B, _H, _S, _D), ()),
    "rows first": ((_B, _S, _H, _D), (("", (0, 2, 1, 3)),)),
    "rows": ((_B, _S, _H * _D), (("reshape", (_B, _S, _H, _D)), ("", (0, 2, 1, 3)))),
    "of joined rows": (
        (_B * _S, _H * _D),
        (("reshape", (_B, _S, _H, _D)), ("", (0, 2, 1, 3))),
    ),
    "columns": (
        (_B, _S, 3 * _H * _D),
        (("cut 2", (_D, (_H + 1) * _D)), ("reshape", (_B, _S, _H, _D)), ("", (0, 2, 1, 3))),
    ),
    "some heads": ((_B, _S, 2 * _H, _D), (("cut 2", (1, _H + 1)), ("", (0, 2, 1, 3)))),
    "some rows": ((_B, _H, 2 * _S, _D), (("cut 2", (3, _S + 3)),)),
    "some sequences": ((2 * _B, _S, _H, _D), (("cut 0", (1, _B + 1)), ("", (0, 2, 1, 3)))),
    "some depth": ((_B, _H, _S, 2 * _D), (("cut 3", (_D, 2 * _D)),)),
    "sequences last": ((_S, _B, _H * _D), (("reshape", (_S, _B, _H, _D)), ("", (1, 2, 0, 3)))),
    "heads first": ((_H, _B, _S, _D), (("", (1, 0, 2, 3)),)),
    "columns first": ((_B, _H, _D, _S), (("", (0, 1, 3, 2)),)),
    "one head": ((_B, 1, _S, _D), (("broadcast_to", (_B, _H, _S, _D)),)),
    "one sequence": ((1, _H, _S, _D), (("broadcast_to", (_B, _H, _S, _D)),)),
    "one row": ((_B, _H, 1, _D), (("broadcast_to", (_B, _H, _S, _D)),)),
    "shared": (
        (_B, 2, _S, _D),
        (
            ("reshape", (_B, 2, 1, _S, _D)),
            ("broadcast_to", (_B, 2, _H // 2, _S, _D)),
            ("reshape", (_B, _H, _S, _D)),
        ),
    ),
    "shared by turns": (
        (_B, 2, _S, _D),
        (
            ("reshape", (_B, 1, 2, _S, _D)),
            ("broadcast_to", (_B, _H // 2, 2, _S, _D)),
            ("reshape", (_B, _H, _S, _D)),
        ),
    ),
    "shared rows": (
        (_B, _S, 2 * _D),
        (
            ("reshape", (_B, _S, 2, _D)),
            ("", (0, 2, 1, 3)),
            ("reshape", (_B, 2, 1, _S, _D)),
            ("broadcast_to", (_B, 2, _H // 2, _S, _D)),
            ("reshape", (_B, _H, _S, _D)),
        ),
    ),
    "one shared": (
        (_B, 1, _S, _D),
        (
            ("broadcast_to", (_B, _H, _S, _D)),
            ("reshape", (_B * _H, _S, _D)),
            ("reshape", (_B, _H, _S, _D)),
        ),
    ),
}
_RESULTS: dict[str, Steps] = {
    "dense": (),
    "rows first": (("", (0, 2, 1, 3)),),
    "rows": (("", (0, 2, 1, 3)), ("reshape", (_B, _S, _H * _D))),
    "joined rows": (("", (0, 2, 1, 3)), ("reshape", (_B * _S, _H * _D))),
    "sequences last": (("", (2, 0, 1, 3)),),
    "columns first": (("", (0, 1, 3, 2)),),
    "some rows": (("cut 2", (1, 3)),),
}


def _stepped(b: Builder, x: int, steps: Steps) -> int:
    for name, numbers in steps:
        if name.startswith("cut"):
            axis, (begin, end) = int(name[-1]), numbers
            shape = (*b.shape(x)[:axis], end - begin, *b.shape(x)[axis + 1 :])
            attrs = {"axis": axis, "begin": begin, "end": end}
            x = b.operator("strided_slice", (x,), shape, "float16", **attrs)
        else:
            x = b.operator(name, (x,), numbers, "float16") if name else b.permute_dims(x, numbers)
    return x


@pytest.mark.parametrize("part", range(8))
def test_any_views_around_attention_compute_the_same(part: int) -> None:
    rng = random.Random(part)
    for _ in range(20):
        b = Builder()
        q, k, v = (
            _stepped(b, b.input(*shape), steps)
            for shape, steps in rng.choices(list(_OPERANDS.values()), k=3)
        )
        turned = b.permute_dims(k, (0, 1, 3, 2))
        if is_joined := rng.random() < 0.3:  # matrices of all sequences and heads
            q, v = (b.reshape(each, (_B * _H, _S, _D)) for each in (q, v))
            turned = b.reshape(turned, (_B * _H, _D, _S))
        made = _attention(b, q, turned, v)
        made = b.reshape(made, (_B, _H, _S, _D)) if is_joined else made
        graph = b.graph(_stepped(b, made, rng.choice(list(_RESULTS.values()))))
        carve(graph, Symbols(()), others=False)


# The views that become strides of no kernel: rows and sequences begin at the first, and a head's
# rows have one distance.
_COPIED = {
    *("some rows", "some sequences", "heads first", "columns first"),
    *("one sequence", "one row", "shared by turns"),
}


@pytest.mark.parametrize("name", _OPERANDS)
def test_keys_and_values_are_read_where_they_lie(name: str) -> None:
    b = Builder()
    shape, steps = _OPERANDS[name]
    q, k, v = b.input(_B, _H, _S, _D), b.input(*shape), b.input(*shape)
    keys = b.permute_dims(_stepped(b, k, steps), (0, 1, 3, 2))
    graph = b.graph(_attention(b, q, keys, _stepped(b, v, steps)))
    made, _ = carve(graph, Symbols(()))
    left = set(_operators(made))
    assert bool(left) == (name in _COPIED), left
