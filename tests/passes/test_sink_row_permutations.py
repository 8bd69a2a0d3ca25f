"""Rows in other orders: what graphs compute stays, and who takes the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import Take
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import sink_row_permutations
from tests.passes.differential import checked

with_rows_in_place = checked(sink_row_permutations.with_rows_in_place)

Array = np.ndarray[Any, Any]
BATCH, SIZE, WINDOW, C = 2, 8, 4, 6
IMAGE = (BATCH, SIZE, SIZE, C)
PAIRED = "einsum"  # an operator of two tensors that the pass does not know


class Net:
    """A graph of images whose rows are moved, and weights of its own."""

    def __init__(self, shape: tuple[int, ...] = IMAGE) -> None:
        self.builder = GraphBuilder()
        self.rng = np.random.default_rng(0)
        self.x = self.builder.add(Expr(op=INPUT, shape=shape, dtype="float32"))

    def _random(self, shape: tuple[int, ...]) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def weight(self, *shape: int) -> int:
        return self.builder.constant(self._random(shape))

    def norm(self, x: int) -> int:
        columns = self.builder.shape(x)[-1]
        args = (x, self.weight(columns), self.builder.constant(np.zeros(columns)))
        shape = self.builder.shape(x)
        attrs: dict[str, Any] = {"axes": (-1,), "epsilon": 1e-5, "scale": True, "center": False}
        return self.builder.operator("nn.layer_norm", args, shape, "float32", **attrs)

    def spelled(self, x: int) -> int:
        """The same, of its operators."""
        b = self.builder
        centred = b.elementwise("subtract", x, self._mean(x))
        variance = self._mean(b.elementwise("multiply", centred, centred))
        root = b.elementwise(
            "rsqrt", b.elementwise("add", variance, b.constant(np.array(1e-5, np.float32)))
        )
        scaled = b.elementwise("multiply", centred, root)
        return b.elementwise("multiply", scaled, self.weight(b.shape(x)[-1]))

    def _mean(self, x: int) -> int:
        shape = self.builder.shape(x)
        attrs = {"axis": (len(shape) - 1,), "keepdims": True}
        return self.builder.operator("mean", (x,), (*shape[:-1], 1), "float32", **attrs)

    def linear(self, x: int, n: int) -> int:
        shape = self.builder.shape(x)
        flat = self.builder.reshape(x, (int(np.prod(shape[:-1])), shape[-1]))
        made = self.builder.matmul(flat, self.weight(shape[-1], n), "float32")
        made = self.builder.elementwise("add", made, self.weight(n))
        return self.builder.reshape(made, (*shape[:-1], n))

    def add(self, x: int, y: int) -> int:
        return self.builder.elementwise("add", x, y)

    def other(self, op: str, *args: int, **attrs: object) -> int:
        return self.builder.operator(op, args, self.builder.shape(args[0]), "float32", **attrs)

    def mixed(self, x: int) -> int:
        """What each row becomes depends on those before it."""
        return self.other("tanh", self.other("cumsum", x, axis=-2, exclusive=False))

    def partition(self, x: int) -> int:
        b, h, w, c = self.builder.shape(x)
        x = self.builder.reshape(x, (b, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c))
        x = self.builder.permute_dims(x, (0, 1, 3, 2, 4, 5))
        return self.builder.reshape(x, (b * h * w // WINDOW**2, WINDOW**2, c))

    def reverse(self, x: int, size: int = SIZE) -> int:
        count, _, c = self.builder.shape(x)
        windows = size // WINDOW
        b = count // windows**2
        x = self.builder.reshape(x, (b, windows, windows, WINDOW, WINDOW, c))
        x = self.builder.permute_dims(x, (0, 1, 3, 2, 4, 5))
        return self.builder.reshape(x, (b, size, size, c))

    def roll(self, x: int, by: int) -> int:
        """As PyTorch's exporter writes it."""
        for axis in (1, 2):
            extent = self.builder.shape(x)[axis]
            places = self.builder.constant(np.arange(extent) - by % extent + extent)
            whole = self.builder.constant(np.array(extent))
            rows = self.builder.operator("mod", (places, whole), (extent,), "int64")
            shape, attrs = self.builder.shape(x), {"axis": axis, "mode": "fast"}
            x = self.builder.operator("take", (x, rows), shape, "float32", **attrs)
        return x

    def cut_roll(self, x: int, by: int) -> int:
        """As ONNX has it."""
        for axis in (1, 2):
            shape = self.builder.shape(x)
            place = -by % shape[axis]
            parts = [self.cut(x, axis, place, shape[axis]), self.cut(x, axis, 0, place)]
            x = self.builder.operator("concat", parts, shape, "float32", axis=axis)
        return x

    def cut(self, x: int, axis: int, begin: int, end: int) -> int:
        shape = self.builder.shape(x)
        cut = (*shape[:axis], end - begin, *shape[axis + 1 :])
        attrs = {"axis": axis, "begin": begin, "end": end}
        return self.builder.operator("strided_slice", (x,), cut, "float32", **attrs)

    def every_second(self, x: int, axis: int, begin: int) -> int:
        shape = self.builder.shape(x)
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        return self.builder.operator("strided_slice", (x,), half, "float32", every=(axis, begin, 2))

    def attention(self, x: int) -> int:
        """A product, something that reads it by windows, and a product."""
        return self.linear(self.mixed(self.linear(x, 3 * C)), C)

    def block(self, x: int, roll: Callable[[int, int], int] | None = None) -> int:
        y = self.norm(x)
        y = roll(y, -2) if roll else y
        y = self.reverse(self.attention(self.partition(y)))
        x = self.add(x, roll(y, 2) if roll else y)
        return self.add(x, self.linear(self.other("nn.relu", self.linear(self.norm(x), 9)), C))

    def graph(self, *results: int) -> Graph:
        return self.builder.graph(results)


def _checked(net: Net, *results: int) -> Graph:
    """The graph with rows in place, which computes the same."""
    return with_rows_in_place(net.graph(*results))


def _moves(graph: Graph) -> list[str]:
    """The moves of a graph, in order; a `take` whose rows a norm's kernel takes is "taken"."""
    moves = []
    for index, expr in enumerate(graph.exprs):
        if expr.op in {"permute_dims", "take", "concat"}:
            is_taken = expr.op == "take" and _is_normed(graph, index)
            moves.append("taken" if is_taken else expr.op)
    return moves


def _is_normed(graph: Graph, index: int) -> bool:
    columns = graph[index].static_shape[-1]
    readers = [each for each in graph.consumers[index] if graph[each].static_shape[-1] == columns]
    return any(
        graph[each].op == "nn.layer_norm"
        or (graph[each].op == "reshape" and _is_normed(graph, each))
        for each in readers
    )


def _norms(graph: Graph) -> int:
    return sum(expr.op == "nn.layer_norm" for expr in graph.exprs)


def test_a_norm_takes_the_rows_of_windows_and_the_residual_stays_in_their_order() -> None:
    net = Net()
    after = _checked(net, net.norm(net.block(net.x)))
    # The norm behind the block takes them back.
    assert _moves(after) == ["taken", "taken"]
    assert _norms(after) == 3


@pytest.mark.parametrize("spelling", ["roll", "cut_roll"])
def test_rolls_and_partitions_are_one_order(spelling: str) -> None:
    net = Net()
    x = net.block(net.block(net.x), getattr(net, spelling))
    after = _checked(net, net.norm(x))
    assert _moves(after) == ["taken"] * 3
    assert all(expr.attrs.of(Take).mode == "clip" for expr in after.exprs if expr.op == "take")


def test_a_norm_of_whole_windows_keeps_their_order() -> None:
    net = Net()
    windows = net.partition(net.x)
    scale, shift = (net.weight(WINDOW**2, C) for _ in range(2))
    attrs: dict[str, Any] = {"axes": (-2, -1), "epsilon": 1e-5, "scale": True, "center": True}
    normed = net.other("nn.layer_norm", windows, scale, shift, **attrs)
    _checked(net, net.reverse(net.linear(normed, C)))


def test_a_result_of_the_model_has_its_author_s_order() -> None:
    net = Net()
    after = _checked(net, net.block(net.block(net.x), net.roll))
    assert _moves(after) == ["taken", "taken", "take"]


def test_query_key_and_value_apart_read_one_norm() -> None:
    net = Net()
    y = net.partition(net.norm(net.x))
    q, k = (net.mixed(net.linear(y, C)) for _ in range(2))
    after = _checked(net, net.add(net.x, net.reverse(net.add(q, k))))
    assert _moves(after) == ["taken", "take"]
    assert _norms(after) == 1


def test_rows_are_taken_before_a_norm_that_is_spelled_out() -> None:
    net = Net()
    y = net.reverse(net.attention(net.partition(net.spelled(net.x))))
    after = _checked(net, net.spelled(net.add(net.x, y)))
    ops = [expr.op for expr in after.exprs]
    assert (ops.count("take"), ops.count("permute_dims"), ops.count("mean")) == (2, 0, 4)
    assert ops.index("take") < ops.index("mean")
    assert "mean" in ops[len(ops) - 1 - ops[::-1].index("take") :]


def test_merged_tokens_are_taken_at_once() -> None:
    net = Net()
    x = net.block(net.block(net.x), net.roll)
    corners = [net.every_second(net.every_second(x, 1, i), 2, j) for j in (0, 1) for i in (0, 1)]
    shape = (BATCH, SIZE // 2, SIZE // 2, 4 * C)
    merged = net.builder.operator("concat", corners, shape, "float32", axis=-1)
    after = _checked(net, net.linear(net.norm(merged), 2 * C))
    # Its norm is of four tokens each, whose kernel takes no parts of rows.
    assert _moves(after) == ["taken", "taken", "take"]


def test_norms_behind_attention_take_the_rows_back() -> None:
    net = Net()
    y = net.reverse(net.attention(net.partition(net.x)))
    after = _checked(net, net.linear(net.add(net.linear(net.x, C), net.norm(y)), C))
    assert _moves(after) == ["take", "taken"]


def test_an_order_is_given_back_by_its_inverse() -> None:
    net = Net()
    y = net.reverse(net.linear(net.partition(net.x), C))
    after = _checked(net, net.mixed(y))
    assert _moves(after) == []


# What stays as it is.


def test_a_move_that_splits_rows_stays() -> None:
    net = Net((BATCH, SIZE, SIZE, 2 * C))
    y = net.builder.reshape(net.norm(net.x), (BATCH, SIZE * SIZE, 2, C))
    y = net.builder.permute_dims(y, (0, 2, 1, 3))
    before = net.graph(net.mixed(y))
    assert with_rows_in_place(before) is before


def test_a_norm_that_others_read_in_another_order_is_computed_once() -> None:
    net = Net()
    y = net.norm(net.x)
    windows = net.reverse(net.attention(net.partition(y)))
    after = _checked(net, net.add(net.add(net.x, windows), net.linear(y, C)))
    assert _norms(after) == 1
    assert "taken" not in _moves(after)


def test_a_product_that_others_read_in_another_order_is_computed_once() -> None:
    net = Net()
    y = net.linear(net.norm(net.x), C)
    windows = net.reverse(net.mixed(net.partition(y)))
    after = _checked(net, net.other(PAIRED, windows, y, subscripts="...c,...c->...c"))
    assert sum(expr.op == "matmul" for expr in after.exprs) == 1


def test_rows_of_which_there_are_fewer_stay() -> None:
    net = Net()
    half = net.cut(net.builder.permute_dims(net.x, (1, 0, 2, 3)), 0, 0, SIZE // 2)
    before = net.graph(net.mixed(net.norm(half)))
    assert with_rows_in_place(before) is before


def test_a_residual_that_nothing_moves_is_not_moved() -> None:
    net = Net()
    y = net.mixed(net.builder.reshape(net.x, (BATCH * 4, WINDOW**2, C)))
    x = net.add(net.linear(net.x, C), net.reverse(y))
    before = net.graph(net.mixed(x))
    assert with_rows_in_place(before) is before


def test_rows_of_open_sizes_stay() -> None:
    net = Net((symbolic(Symbol("batch", 1, 8)), SIZE, SIZE, C))
    y = net.builder.reshape(net.norm(net.x), (*net.builder.shape(net.x)[:2], 2, WINDOW, C))
    y = net.builder.permute_dims(y, (0, 2, 1, 3, 4))
    before = net.graph(net.mixed(y))
    assert with_rows_in_place(before) is before


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 63)), min_size=1, max_size=14))
def test_whatever_is_moved_is_computed(steps: list[tuple[int, int]]) -> None:
    net = Net()
    values = [net.x]
    for kind, which in steps:
        x = values[which % len(values)]
        match kind:
            case 0:
                x = net.builder.reshape(net.partition(x), IMAGE)
            case 1:
                x = net.reverse(net.builder.reshape(x, (BATCH * 4, WINDOW**2, C)))
            case 2:
                x = net.roll(x, which % 5 - 2)
            case 3:
                x = net.cut_roll(x, which % 3 + 1)
            case 4:
                x = net.norm(x)
            case 5:
                x = net.linear(x, C)
            case 6:
                x = net.add(x, values[-1])
            case 7:
                x = net.other("nn.relu", x)
            case 8:
                x = net.mixed(x)
            case 9:
                x = net.spelled(x)
        values.append(x)
    _checked(net, values[-1], values[len(values) // 2])


@pytest.mark.parametrize("axis", [0, 1])
def test_quantisations_with_numbers_along_an_axis_keep_their_rows(axis: int) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(8, 8), dtype="float32"))

    def turned(value: int, extents: tuple[int, ...]) -> int:
        return b.reshape(b.permute_dims(b.reshape(value, extents), (1, 0, 2)), (8, 8))

    scales = b.constant((2.0 ** np.arange(-6, 2)).astype(np.float32))
    zeros = b.constant(np.zeros(8, np.int8))
    y = turned(x, (2, 4, 8))
    y = b.operator("quantize", (y, scales, zeros), (8, 8), "int8", axis=axis)
    y = b.operator("dequantize", (y, scales, zeros), (8, 8), "float32", axis=axis)
    y = b.matmul(y, b.constant(np.eye(8, dtype=np.float32)), "float32")
    with_rows_in_place(b.graph(turned(y, (4, 2, 8))))
