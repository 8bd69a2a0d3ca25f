"""Rows that are taken of a tensor: which products' kernels take them, and what comes before."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.graph import GROUPED, INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import sink_gathers
from boltgen.passes.movement.sink_gathers import Taken, taken_rows
from boltgen.passes.regions.anchor import Anchor, match_anchor
from tests.passes.differential import checked

gathered_last = checked(sink_gathers.gathered_last, others=True)

TOKENS = symbolic(Symbol("tokens", 2, 64))
K, N, GROUPS = 32, 48, 4


class Net:
    """Tokens, and what chooses their experts."""

    def __init__(self, tokens: int = TOKENS, dtype: str = "float16") -> None:
        self.builder = GraphBuilder()
        self.x = self.input((tokens, K), dtype)
        self.b = self.input((GROUPS, K, N), "float16")
        self.ends = self.input((GROUPS,), "int32")

    def input(self, shape: tuple[int, ...], dtype: str) -> int:
        return self.builder.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def taken(self, x: int, rows: int, **attrs: object) -> int:
        flat = attrs.get("axis", 0) is None
        shape = (*self.builder.shape(rows), *self.builder.shape(x)[1 + flat :])
        given = {"axis": 0, "mode": "fast", **attrs}
        return self.builder.operator("take", (x, rows), shape, self.builder.dtype(x), **given)

    def graph(self, *multiplied: int) -> Graph:
        m = self.builder.shape(multiplied[0])[0]
        made = (
            self.builder.operator(GROUPED, (a, self.b, self.ends), (m, N), "float16")
            for a in multiplied
        )
        return gathered_last(self.builder.graph(tuple(made)))


def _anchor(graph: Graph) -> Anchor:
    index = next(at for at, expr in enumerate(graph.exprs) if expr.op == GROUPED)
    found = match_anchor(graph, index)
    assert isinstance(found, Anchor)
    return found


def _names(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op != INPUT]


def test_a_kernel_takes_the_rows_of_an_operator_before_it() -> None:
    net = Net()
    rows = net.input((2 * TOKENS,), "int64")
    taken = net.taken(net.x, rows)
    anchor = _anchor(net.graph(taken))
    assert anchor.taken == Taken(x=net.x, rows=rows, take=taken, members=(taken,))
    assert anchor.a == net.x
    assert anchor.problem.a_shape == (TOKENS, K)
    assert anchor.problem.d_shape == (2 * TOKENS, N)


@pytest.mark.parametrize(
    ("rows", "attrs"),
    [
        (((6,), "int64"), {"mode": "wrap"}),
        (((6,), "int64"), {"mode": "nan"}),
        (((6, K), "int64"), {"axis": None}),
        (((TOKENS,), "uint8"), {}),
    ],
    ids=["wrap", "nan", "flat", "bytes"],
)
def test_other_ways_to_take_stay_before_the_kernel(
    rows: tuple[tuple[int, ...], str], attrs: dict[str, object]
) -> None:
    net = Net()
    taken = net.taken(net.x, net.input(*rows), **attrs)
    anchor = _anchor(net.graph(taken))
    assert (anchor.a, anchor.taken) == (taken, None)


def test_a_cast_comes_before_the_rows_are_taken() -> None:
    """Once for both products, since the tensor has fewer rows than are taken of it."""
    net = Net(dtype="float32")
    taken = net.taken(net.x, net.input((2 * TOKENS,), "int64"))
    cast = net.builder.astype(taken, "float16")
    graph = net.graph(cast, cast)
    assert _names(graph) == ["astype", "take", GROUPED, GROUPED]
    assert graph[_anchor(graph).a].op == "astype"
    assert graph[_anchor(graph).a].static_shape == (TOKENS, K)


def test_a_long_tensor_is_not_cast_for_a_few_of_its_rows() -> None:
    net = Net(tokens=30000, dtype="float32")
    cast = net.builder.astype(net.taken(net.x, net.input((2 * TOKENS,), "int64")), "float16")
    assert _names(net.graph(cast)) == ["take", "astype", GROUPED]


@pytest.mark.parametrize(
    ("dtype", "tokens"), [("int8", TOKENS), ("float32", symbolic(Symbol("other", 2, 64)))]
)
def test_a_cast_stays_behind_what_may_be_longer_or_is_no_float(dtype: str, tokens: int) -> None:
    net = Net(tokens=tokens, dtype=dtype)
    cast = net.builder.astype(net.taken(net.x, net.input((TOKENS,), "int64")), "float16")
    assert _names(net.graph(cast)) == ["take", "astype", GROUPED]


def test_rows_of_rows_are_rows_of_the_tensor() -> None:
    net = Net()
    token, order = (net.input((2 * TOKENS,), "int64") for _ in range(2))
    graph = net.graph(net.taken(net.taken(net.x, token), order))
    anchor = _anchor(graph)
    assert anchor.a == net.x
    assert anchor.taken is not None
    rows = graph[anchor.taken.rows]
    assert (rows.op, rows.args) == ("take", (token, order))
    assert (rows.static_shape, rows.dtype) == ((2 * TOKENS,), "int64")


def test_views_of_rows_and_of_integers_are_none_of_the_kernels() -> None:
    """A token has two experts: its row is taken by both integers, which PyTorch narrows."""
    net = Net()
    given = net.input((TOKENS, 2), "int64")
    narrow = net.builder.astype(given, "int32")
    taken = net.taken(net.x, narrow)
    a = net.builder.reshape(taken, (2 * TOKENS, K))
    anchor = _anchor(net.graph(a))
    assert anchor.taken == Taken(x=net.x, rows=given, take=taken, members=(a, taken, narrow))


def test_integers_that_are_clipped_are_not_widened() -> None:
    """2**32 is row 0 once it is narrow, and the last row as it is."""
    net = Net()
    narrow = net.builder.astype(net.input((2 * TOKENS,), "int64"), "int32")
    anchor = _anchor(net.graph(net.taken(net.x, narrow, mode="clip")))
    assert anchor.taken is not None
    assert anchor.taken.rows == narrow


@pytest.mark.parametrize("rows", [TOKENS, TOKENS + 1])
@pytest.mark.parametrize("others", [False, True])
def test_a_norm_is_of_rows_of_what_is_narrow_already(rows: int, others: bool) -> None:
    net = Net(dtype="float32")
    taken = net.taken(net.x, net.input((rows,), "int32"))
    narrow = net.builder.astype(net.builder.reshape(taken, (1, rows, K)), "float16")
    scale = (net.input((K,), "float16"), net.input((K,), "float16"))
    args, shape = (narrow, *scale), (1, rows, K)
    normed = net.builder.operator("nn.layer_norm", args, shape, "float16", axes=(-1,), epsilon=1e-5)
    graph = gathered_last(net.builder.graph((normed, taken) if others else normed))
    moved = ["take", "reshape", "astype"] if others else ["astype", "take", "reshape"]
    assert _names(graph) == [*moved, "nn.layer_norm"]


def test_a_norm_widens_the_rows_that_it_takes() -> None:
    net = Net()
    taken = net.builder.astype(net.taken(net.x, net.input((TOKENS,), "int32")), "float32")
    args = (taken, net.input((K,), "float32"), net.input((K,), "float32"))
    normed = net.builder.operator(
        "nn.layer_norm", args, (TOKENS, K), "float32", axes=(-1,), epsilon=1e-5
    )
    graph = gathered_last(net.builder.graph(normed))
    assert _names(graph) == ["take", "astype", "nn.layer_norm"]


@pytest.mark.parametrize("mode", ["fast", "clip"])
@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ("int64", "int32", "fast"),
        ("int32", "int64", "both"),
        ("int32", "int32", "both"),
        ("uint8", "int32", "none"),
        ("float32", "int32", "none"),
    ],
)
def test_casts_of_integers_that_gather_the_same_rows(
    mode: str, before: str, after: str, is_found: str
) -> None:
    net = Net()
    given = net.input((2 * TOKENS,), before)
    rows = net.builder.operator("astype", (given,), (2 * TOKENS,), after, from_dtype=before)
    anchor = _anchor(net.graph(net.taken(net.x, rows, mode=mode)))
    assert anchor.taken is not None
    assert (anchor.taken.rows == given) == (is_found in {mode, "both"})


def test_a_single_row_by_a_number_is_no_gather() -> None:
    b = GraphBuilder()
    table = b.add(Expr(op=INPUT, shape=(8, K), dtype="float16"))
    row = b.constant(np.array([3], np.int64))
    taken = b.operator("take", (table, row), (1, K), "float16", axis=0, mode="fast")
    one = b.constant(np.ones((1, 1), np.float16))
    rows = b.add(Expr(op=INPUT, shape=(5,), dtype="int64"))
    of_one = b.operator("take", (one, rows), (5, 1), "float16", axis=0, mode="fast")
    graph = b.graph((taken, of_one))
    assert [taken_rows(graph, index) for index in graph.operators["take"]] == [None, None]


@pytest.mark.parametrize("rank", [1, 3])
def test_rows_of_a_matrix_alone_are_gathered(rank: int) -> None:
    b = GraphBuilder()
    shape = (8, 3, K)[-rank:] if rank > 1 else (8,)
    x = b.add(Expr(op=INPUT, shape=shape, dtype="float16"))
    rows = b.add(Expr(op=INPUT, shape=(5,), dtype="int64"))
    taken = b.operator("take", (x, rows), (5, *shape[1:]), "float16", axis=0, mode="fast")
    assert taken_rows(b.graph(taken), taken) is None


def _for_weights(net: Net, taken: int) -> Graph:
    """The gathered tensor is a weight of each group, and no operand with rows."""
    b = net.builder
    weights = b.reshape(b.astype(taken, "float16"), (GROUPS, K, N))
    rows = net.input((TOKENS, K), "float16")
    made = b.operator(GROUPED, (rows, weights, net.ends), (TOKENS, N), "float16")
    return gathered_last(b.graph(made))


def test_a_weight_that_is_gathered_is_no_operand_with_rows() -> None:
    net = Net(dtype="float32")
    table = net.input((9, N), "float32")
    rows = net.input((GROUPS * K,), "int64")
    assert _names(_for_weights(net, net.taken(table, rows)))[:2] == ["take", "astype"]


def test_integers_that_choose_rows_are_no_operand_with_rows() -> None:
    """A cast of gathered integers is read by a gather, and not multiplied."""
    net = Net()
    b = net.builder
    table, places = net.input((9, 2), "int64"), net.input((TOKENS,), "int64")
    chosen = b.astype(net.taken(table, places), "int32")
    graph = net.graph(b.reshape(net.taken(net.x, chosen), (2 * TOKENS, K)))
    assert [name for name in _names(graph) if name in {"take", "astype"}] == [
        *("take", "astype", "take")
    ]


@pytest.mark.parametrize("is_by_vector", [True, False])
def test_only_rows_by_a_vector_are_gathered_once(is_by_vector: bool) -> None:
    net = Net()
    shape = (2 * TOKENS,) if is_by_vector else (TOKENS, 2)
    token, order = net.input(shape, "int64"), net.input((2 * TOKENS,), "int64")
    inner = net.builder.reshape(net.taken(net.x, token), (2 * TOKENS, K))
    graph = net.graph(net.taken(inner, order))
    assert _anchor(graph).taken is not None
    assert _names(graph).count("take") == 2
