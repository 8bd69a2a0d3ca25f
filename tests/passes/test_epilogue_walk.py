"""Regions over hand-made neutral graphs: what grows, and what must not."""

from __future__ import annotations

import pytest

from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.graph import CONSTANT, HALF, INPUT, Expr, Graph
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.anchor import Anchor, match_anchor
from boltgen.passes.regions.broadcast_kind import shared_span, span
from boltgen.passes.regions.epilogue_walk import grow
from boltgen.passes.regions.tail import Tail
from boltgen.problems.region import Shared, Sharing
from tests.passes.carved import carve

M, N, K = 16, 24, 8


class Maker:
    """Appends expressions to a graph, by default FP16 of the shape (M, N)."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        x, w = self.input((M, K)), self.input((K, N))
        self.product = self.op("matmul", x, w)

    def input(self, shape: tuple[int | str, ...] = (M, N), dtype: str = "float16") -> int:
        return self._append(Expr(op=INPUT, shape=shape, dtype=dtype))

    def scalar(self, value: float) -> int:
        return self._append(Expr(op=CONSTANT, shape=(), dtype="float16", scalar=value))

    def op(
        self,
        name: str,
        *args: int,
        shape: tuple[int, ...] = (M, N),
        dtype: str = "float16",
        **attrs: object,
    ) -> int:
        attrs = {"axis": -1, **attrs} if name == "nn.softmax" else attrs
        known = attributes_of(name, attrs)
        return self._append(Expr(op=name, args=args, shape=shape, dtype=dtype, attrs=known))

    def _append(self, expr: Expr) -> int:
        self.exprs.append(expr)
        return len(self.exprs) - 1

    def grow(self, *outputs: int, claimed: tuple[int, ...] = ()) -> Tail:
        graph = Graph(tuple(self.exprs), frozenset(outputs), outputs)
        if all(expr.is_static for expr in graph.exprs):
            carve(graph, Symbols(()))  # which compares what the region computes
        anchor = match_anchor(graph, self.product)
        assert isinstance(anchor, Anchor)
        return grow(graph, anchor, claimed)


def test_nothing_follows() -> None:
    g = Maker()
    tail = g.grow(g.product)
    assert tail.members == (g.product,)
    assert tail.epilogue.is_identity


@pytest.mark.parametrize("bias_first", [True, False])
def test_bias_residual_and_activation(bias_first: bool) -> None:
    g = Maker()
    bias, residual = g.input((N,)), g.input()
    order = (bias, g.product) if bias_first else (g.product, bias)
    added = g.op("add", *order)
    active = g.op("nn.relu", added)
    out = g.op("add", residual, active)
    tail = g.grow(out)
    assert tail.output == out
    assert [operand.expr for operand in tail.operands] == [bias, residual]
    inner = "add(row0, acc)" if bias_first else "add(acc, row0)"
    assert tail.epilogue.describe() == f"add(tensor0, relu({inner}))"


def test_a_cast_rounds_and_one_to_fp32_is_nothing() -> None:
    """The matmul's result is FP32, and the epilogue's arithmetic is too."""
    g = Maker()
    wide = Maker()
    wide.exprs = g.exprs[:2]
    wide.product = wide.op("matmul", 0, 1, dtype="float32")
    narrow = wide.op("astype", wide.product, from_dtype="float32")
    again = wide.op("astype", narrow, dtype="float32", from_dtype="float16")
    out = wide.op("tanh", again, dtype="float32")
    tail = wide.grow(out)
    assert tail.output == out
    assert tail.epilogue.describe() == "tanh(float16(acc))"


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "int4"])
def test_a_quantisation_to_what_no_kernel_stores_is_refused_by_name(dtype: str) -> None:
    """The interpreter has no such type, so no values are compared."""
    g = Maker()
    relu = g.op("nn.relu", g.product)
    rounded = g.op("quantize", relu, g.scalar(0.5), g.scalar(0.0), dtype=dtype, axis=1)
    graph = Graph(tuple(g.exprs), frozenset({rounded}), (rounded,))
    anchor = match_anchor(graph, g.product)
    assert isinstance(anchor, Anchor)
    tail = grow(graph, anchor)
    assert tail.output == relu
    said = f"a quantisation to {dtype}; kernels store int8, uint8 and float8"
    assert said in tail.refused[rounded]


def test_the_readers_of_the_last_operator_have_a_reason() -> None:
    g = Maker()
    relu = g.op("nn.relu", g.product)
    known, other = g.op("tanh", relu), g.op("floor", relu)
    tail = g.grow(known, other)
    assert tail.output == relu
    assert tail.refused[other] == "no epilogue has this operator"
    assert "an operator that no epilogue has reads it too" in tail.refused[known]


def test_an_operator_that_is_computed_with_others_has_no_reason() -> None:
    g = Maker()
    out = g.op("tanh", g.op("nn.relu", g.product))
    assert g.grow(out).refused == {}


def test_an_operand_used_twice_is_loaded_once() -> None:
    g = Maker()
    residual = g.input()
    out = g.op("multiply", g.op("add", g.product, residual), residual)
    tail = g.grow(out)
    assert tail.epilogue.describe() == "multiply(add(acc, tensor0), tensor0)"
    assert len(tail.operands) == 1


def test_the_activation_of_the_product_is_its_residual_too() -> None:
    g = Maker()
    square = Maker()
    square.exprs = []
    x, w = square.input((N, N)), square.input((N, N))
    square.product = square.op("matmul", x, w, shape=(N, N))
    out = square.op("add", square.product, x, shape=(N, N))
    tail = square.grow(out)
    assert [operand.expr for operand in tail.operands] == [x]
    assert tail.output == out
    assert g.grow(g.product).output == g.product


def test_a_value_used_outside_ends_the_region() -> None:
    g = Maker()
    added = g.op("add", g.product, g.input((N,)))
    relu = g.op("nn.relu", added)
    other = g.op("nn.softmax", added)
    tail = g.grow(relu, other)
    assert tail.output == added


def test_a_value_that_is_a_result_of_the_model_ends_the_region() -> None:
    g = Maker()
    added = g.op("add", g.product, g.input((N,)))
    relu = g.op("nn.relu", added)
    assert g.grow(added, relu).output == added


def test_an_operand_that_depends_on_the_region_blocks() -> None:
    g = Maker()
    relu = g.op("nn.relu", g.product)
    outside = g.op("nn.softmax", relu)
    out = g.op("add", relu, outside)
    tail = g.grow(out)
    assert tail.output == relu
    assert out not in tail.members


def test_branches_that_meet_again_are_one_region() -> None:
    g = Maker()
    x = g.op("add", g.product, g.input((N,)))
    out = g.op("multiply", x, g.op("sigmoid", x))
    tail = g.grow(out)
    assert tail.output == out
    assert tail.epilogue.describe() == "silu(add(acc, row0))"


def test_a_region_stops_before_its_third_full_tensor() -> None:
    g = Maker()
    first = g.op("add", g.product, g.input())
    second = g.op("add", first, g.input())
    third = g.op("add", second, g.input())
    assert g.grow(third).output == second


def test_a_claimed_operator_is_left_alone() -> None:
    g = Maker()
    added = g.op("add", g.product, g.input())
    assert g.grow(added, claimed=(added,)).output == g.product


def test_a_broadcast_result_is_not_fused() -> None:
    g = Maker()
    out = g.op("add", g.product, g.input((5, M, N)), shape=(5, M, N))
    assert g.grow(out).output == g.product


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_an_operand_of_another_dtype_is_not_fused(dtype: str) -> None:
    """The graph breaks a rule, so that no values are compared."""
    g = Maker()
    out = g.op("multiply", g.product, g.input((N,), dtype))
    assert _refused(g, g.product, out)


def test_a_symbolic_operand_is_not_fused() -> None:
    g = Maker()
    out = g.op("add", g.product, g.input(("n", N)))
    assert g.grow(out).output == g.product


def test_a_cast_up_is_fused_where_it_leaves_the_model_or_enters_a_softmax() -> None:
    g = Maker()
    cast = g.op("astype", g.product, dtype="float32", from_dtype="float16")
    assert g.grow(cast).output == cast
    softmax = g.op("nn.softmax", cast, dtype="float32")
    assert g.grow(softmax).output == cast
    g.op("mean", cast, shape=(M, 1), dtype="float32", axis=(1,), keepdims=True)
    assert g.grow(softmax).output == g.product


def test_a_reshape_that_keeps_rows_is_passed_and_last_where_it_is_returned() -> None:
    g = Maker()
    view = g.op("reshape", g.product, shape=(2, M // 2, N))
    assert g.grow(view).output == view
    tanh = g.op("floor", view, shape=(2, M // 2, N))
    assert g.grow(tanh).output == g.product
    g = Maker()
    view = g.op("reshape", g.product, shape=(2, M // 2, N))
    relu = g.op("nn.relu", view, shape=(2, M // 2, N))
    assert g.grow(relu).output == relu
    split = g.op("reshape", relu, shape=(M, 2, N // 2))
    last = g.op("nn.relu", split, shape=(M, 2, N // 2))
    assert g.grow(last).output == relu


def test_powers_and_prelu_become_arithmetic() -> None:
    g = Maker()
    cube = g.op("power", g.product, g.scalar(3.0))
    assert g.grow(cube).epilogue.describe() == "multiply(multiply(acc, acc), acc)"
    g = Maker()
    out = g.op("nn.prelu", g.product, g.input((N,)), axis=1)
    assert g.grow(out).epilogue.describe() == "add(relu(acc), multiply(row0, clip(acc, -inf, 0)))"
    g = Maker()
    out = g.op("power", g.product, g.scalar(1.7))
    assert g.grow(out).output == g.product


def _refused(g: Maker, x: int, last: int) -> str:
    """The reason why `last` is not in the region that ends with `x`; no values are compared."""
    graph = Graph(tuple(g.exprs), frozenset({last}), last)
    anchor = match_anchor(graph, g.product)
    assert isinstance(anchor, Anchor)
    tail = grow(graph, anchor)
    assert tail.output == x
    return tail.refused[last]


_PAIR = (0.5, 2.0)  # a number for each column


@pytest.mark.parametrize(
    ("name", "operands", "dtype", "attrs", "reason"),
    [
        ("astype", (), "float64", {"from_dtype": "float16"}, "a cast to float64"),
        ("astype", (), "int8", {"from_dtype": "float16"}, "an operator that gives int8"),
        ("astype", (), "int32", {"from_dtype": "float16"}, "an operator that gives int32"),
        ("power", (1.5,), "float16", {}, "a power with the exponent 1.5"),
        ("nn.softplus", (), "float16", {"beta": 2.0}, "a softplus with beta=2.0"),
        ("quantize", (_PAIR, 0.0), "int8", {"axis": 1}, "a quantisation with a scale or zero"),
        ("quantize", (0.5, _PAIR), "int8", {"axis": 1}, "a quantisation with a scale or zero"),
        (HALF, (), "float16", {"index": 1}, "a half of a value that is no product"),
    ],
)
def test_what_an_epilogue_does_not_compute_has_its_reason(
    name: str, operands: tuple[object, ...], dtype: str, attrs: dict[str, object], reason: str
) -> None:
    g = Maker()
    relu = g.op("nn.relu", g.product)
    args = [g.input((N,)) if each == _PAIR else g.scalar(each) for each in operands]
    last = g.op(name, relu, *args, dtype=dtype, **attrs)
    assert _refused(g, relu, last).startswith(reason)


def test_slopes_along_rows_are_refused() -> None:
    g = Maker()
    g.product = g.op("matmul", g.input((N, K)), g.input((K, N)), shape=(N, N))
    relu = g.op("nn.relu", g.product, shape=(N, N))
    last = g.op("nn.prelu", relu, g.input((N,)), shape=(N, N), axis=0)
    assert _refused(g, relu, last) == "a PReLU whose slopes are not along the last axis"


@pytest.mark.parametrize(
    ("name", "operands", "attrs", "text"),
    [
        ("power", (2.0,), {}, "multiply(acc, acc)"),
        ("power", (0.5,), {}, "sqrt(acc)"),
        ("square", (), {}, "multiply(acc, acc)"),
        ("nn.softplus", (), {"beta": 1.0}, "softplus(acc)"),
        ("nn.prelu", (0.25,), {"axis": 1}, "leaky_relu(acc, 0.25)"),
        ("nn.prelu", (0.25,), {"axis": 0}, "leaky_relu(acc, 0.25)"),
    ],
)
def test_functions_by_their_numbers(
    name: str, operands: tuple[float, ...], attrs: dict[str, object], text: str
) -> None:
    g = Maker()
    last = g.op(name, g.product, *map(g.scalar, operands), **attrs)
    graph = Graph(tuple(g.exprs), frozenset({last}), last)
    anchor = match_anchor(graph, g.product)
    assert isinstance(anchor, Anchor)
    assert grow(graph, anchor).epilogue.describe() == text


@pytest.mark.parametrize(
    ("shape", "out", "batched", "expected"),
    [
        ((N,), (M, N), False, (LoadKind.ROW, False)),
        ((1, N), (M, N), False, (LoadKind.ROW, False)),
        ((1, 1, 1, N), (2, 3, 4, N), False, (LoadKind.ROW, False)),
        ((M, N), (M, N), False, (LoadKind.TENSOR, False)),
        ((1, N), (1, N), False, (LoadKind.ROW, False)),
        ((M, 1), (M, N), False, (LoadKind.COLUMN, False)),
        ((2, 3, 4, 1), (2, 3, 4, N), False, (LoadKind.COLUMN, False)),
        ((3, 4, N), (2, 3, 4, N), False, None),
        ((2, 1, 1, N), (2, 3, 4, N), False, None),
        ((1,), (M, N), False, None),
        ((2, 3, M, N), (2, 3, M, N), True, (LoadKind.TENSOR, True)),
        ((1, 1, M, N), (2, 3, M, N), True, (LoadKind.TENSOR, False)),
        ((M, N), (2, 3, M, N), True, (LoadKind.TENSOR, False)),
        ((N,), (2, 3, M, N), True, (LoadKind.ROW, False)),
        ((1, 1, M, 1), (2, 3, M, N), True, (LoadKind.COLUMN, False)),
        ((2, 1, 1, N), (2, 3, M, N), True, None),
        ((2, 1, M, N), (2, 3, M, N), True, None),
        ((2, 3, M, 1), (2, 3, M, N), True, None),
        ((9, M, N), (M, N), False, None),
    ],
)
def test_span(
    shape: tuple[int, ...],
    out: tuple[int, ...],
    batched: bool,
    expected: tuple[LoadKind, bool] | None,
) -> None:
    assert span(shape, out, batched=batched) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((N,), (LoadKind.ROW, False, None)),
        ((2, 3, M, N), (LoadKind.TENSOR, True, None)),
        ((2, 3, 1, N), (LoadKind.ROW, True, None)),
        ((2, 1, 1, N), (LoadKind.ROW, False, Shared(by=Sharing.HEADS, heads=3))),
        ((2, 1, M, N), (LoadKind.TENSOR, False, Shared(by=Sharing.HEADS, heads=3))),
        ((2, 1, M, 1), (LoadKind.COLUMN, False, Shared(by=Sharing.HEADS, heads=3))),
        ((1, 3, M, N), (LoadKind.TENSOR, False, Shared(by=Sharing.SEQUENCES, heads=3))),
        ((3, 1, N), (LoadKind.ROW, False, Shared(by=Sharing.SEQUENCES, heads=3))),
        ((2, 1, 1, 1), None),
        ((2, 2, M, N), None),
    ],
)
def test_shared_span(
    shape: tuple[int, ...], expected: tuple[LoadKind, bool, Shared | None] | None
) -> None:
    assert shared_span(shape, (2, 3, M, N)) == expected


@pytest.mark.parametrize(
    ("shape", "is_fused"),
    [((4, 6, 8), True), ((2, 2, 6, 8), True), ((24, 8), False), ((8, 3, 8), False)],
)
def test_a_reshape_keeps_the_matrices_of_a_batch(shape: tuple[int, ...], is_fused: bool) -> None:
    g = Maker()
    product = g.op("matmul", g.input((4, 6, 16)), g.input((4, 16, 8)), shape=(4, 6, 8))
    view = g.op("reshape", product, shape=shape)
    graph = Graph(tuple(g.exprs), frozenset({view}), view)
    carve(graph, Symbols(()))
    anchor = match_anchor(graph, product)
    assert isinstance(anchor, Anchor)
    relu = g.op("nn.relu", view, shape=shape)
    graph = Graph(tuple(g.exprs), frozenset({relu}), relu)
    assert grow(graph, anchor).output == (relu if is_fused else product)
