"""Rows that are taken of a tensor: which products' kernels take them, and what comes before."""

from __future__ import annotations

import pytest

from boltgen.graph.graph import GROUPED, INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import sink_gathers
from boltgen.passes.movement.sink_gathers import Taken
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
