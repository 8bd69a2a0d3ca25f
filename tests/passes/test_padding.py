"""Tensors with more channels than a model says: its results stay, and vectors fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.padding import apply
from boltgen.passes.padding.plan import Padding, plan_padding
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

padded = checked(apply.padded)
F16 = "float16"
ROWS = 16


@dataclass(frozen=True)
class Costs:
    """A kernel takes 1 us, and `odd` more for each operand that no vectors hold; moves `move`."""

    odd: float = 1.0
    move: float = 0.25
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        def time_us(one: Workload) -> float:
            problem = one.single.problem
            return 1.0 + self.odd * sum(
                each < 8 for each in (problem.alignment_a, problem.alignment_d)
            )

        return KernelTimes(times_us=tuple(map(time_us, workloads)), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        del bytes_moved
        return self.move * launches


class Net(GraphBuilder):
    """Grows a network of products in FP16 and NHWC."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F16))

    def weight(self, *shape: int) -> int:
        return self.constant((self.rng.integers(-8, 9, shape) / 8).astype(np.float16))

    def product(self, x: int, n: int, *, is_column: bool = False) -> int:
        k = self.shape(x)[-1]
        b = self.permute_dims(self.weight(n, k), (1, 0)) if is_column else self.weight(k, n)
        return self.matmul(x, b, F16)

    def biased(self, x: int, n: int, *, is_column: bool = False) -> int:
        made = self.product(x, n, is_column=is_column)
        return self.elementwise("nn.relu", self.elementwise("add", made, self.weight(n)))

    def conv(self, x: int, filters: int) -> int:
        n, h, w, c = self.shape(x)
        attrs = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        args, shape = (x, self.weight(filters, 3, 3, c)), (n, h, w, filters)
        made = self.operator("nn.conv2d", args, shape, F16, **attrs, **layouts)
        return self.elementwise("add", made, self.weight(1, 1, 1, filters))


def _plan(graph: Graph, costs: Costs | None = None) -> tuple[Padding, ...]:
    return plan_padding(graph, costs or Costs())


def test_a_tensor_between_products_is_written_and_read_padded() -> None:
    b = Net()
    graph = b.graph(b.biased(b.biased(b.input(ROWS, 8), 12), 16))
    plan = _plan(graph)
    assert [(each.channels, each.filters, each.moves) for each in plan] == [
        (8, 16, False),
        (16, 16, False),
    ]
    made = padded(graph, plan)
    assert "nn.pad" not in operators(made)
    assert [expr.shape for expr in made.exprs if expr.op == "matmul"] == [(ROWS, 16)] * 2


@pytest.mark.parametrize(("move", "is_moved"), [(0.25, True), (2.0, False)])
def test_an_input_is_padded_where_its_move_is_faster(move: float, is_moved: bool) -> None:
    b = Net()
    graph = b.graph(b.biased(b.input(ROWS, 12), 16))
    (plan,) = _plan(graph, Costs(move=move))
    assert (plan.is_padded, plan.moves) == (is_moved, is_moved)
    assert ("nn.pad" in operators(padded(graph, (plan,)))) == is_moved
    times = "1.2 us against 2.0 us unpadded" if is_moved else "as the model says; 2.0 us"
    assert times in plan.describe(graph)


def test_tvm_pads_what_it_computes_of_an_input_without_a_launch() -> None:
    b = Net()
    graph = b.graph(b.biased(b.elementwise("nn.relu", b.input(ROWS, 12)), 16))
    (plan,) = _plan(graph, Costs(move=2.0))
    assert plan.is_padded
    assert plan.moves


def test_a_square_product_of_a_padded_input_keeps_its_columns() -> None:
    """A has as many columns as the result, and only A is padded."""
    b = Net()
    graph = b.graph(b.biased(b.input(ROWS, 12), 12))
    made = padded(graph, _plan(graph))
    (product,) = (expr for expr in made.exprs if expr.op == "matmul")
    assert (made[product.args[0]].shape, product.shape) == ((ROWS, 16), (ROWS, 12))


def test_results_of_the_model_keep_their_channels() -> None:
    b = Net()
    graph = b.graph(b.biased(b.input(ROWS, 8), 12))
    made = padded(graph, _plan(graph))
    assert isinstance(made.results, int)
    assert made[made.results].shape == (ROWS, 12)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_residuals_of_products_of_other_inputs_are_padded_with_the_sum(depth: int) -> None:
    """The products of a sum share no tensor but the residual, and are decided about together."""
    b = Net()
    total = b.biased(b.input(ROWS, 8), 12)
    for _ in range(depth):
        total = b.elementwise("add", b.product(b.input(ROWS, 8), 12), total)
    graph = b.graph(b.biased(total, 16))
    plan = _plan(graph)
    assert [(each.channels, each.filters) for each in plan] == [(8, 16)] * (depth + 1) + [(16, 16)]
    made = padded(graph, plan)
    assert {expr.shape for expr in made.exprs if expr.op == "matmul"} == {(ROWS, 16)}


def test_images_are_padded_between_convolutions() -> None:
    b = Net()
    graph = b.graph(b.conv(b.conv(b.input(1, 4, 4, 8), 6), 8))
    made = padded(graph, _plan(graph))
    assert [expr.shape for expr in made.exprs if expr.op == "nn.conv2d"] == [(1, 4, 4, 8)] * 2


def test_a_sum_with_what_nobody_pads_keeps_its_channels() -> None:
    b = Net()
    x = b.input(ROWS, 12)
    total = b.elementwise("add", b.biased(b.input(ROWS, 8), 12), x)
    graph = b.graph(b.elementwise("add", b.biased(total, 16), b.biased(x, 16)))
    made = padded(graph, _plan(graph))
    assert (ROWS, 12) in [expr.shape for expr in made.exprs if expr.op == "add"]


def test_a_convolution_of_another_layout_keeps_its_shape() -> None:
    """It stays TVM's beside convolutions that are padded."""
    b = Net()
    made = b.permute_dims(b.conv(b.input(1, 6, 6, 4), 8), (0, 3, 1, 2))
    attrs = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "NCHW"}
    args = made, b.weight(4, 8, 3, 3)
    other = b.operator("nn.conv2d", args, (1, 4, 6, 6), b.dtype(made), **attrs, **layouts)
    graph = b.graph(other)
    plan = _plan(graph)
    assert any(each.is_padded for each in plan)
    after = padded(graph, plan)
    assert [expr.shape for expr in after.exprs if expr.op == "nn.conv2d"][1] == (1, 4, 6, 6)


@pytest.mark.parametrize("rows", [(2, 1, 12), (1, 8, 12)], ids=["of sequences", "of positions"])
def test_rows_of_a_table_keep_channels(rows: tuple[int, ...]) -> None:
    b = Net()
    total = b.elementwise("add", b.product(b.input(2, 8, 8), 12), b.input(*rows))
    graph = b.graph(b.biased(total, 16))
    made = padded(graph, _plan(graph))
    assert (2, 8, 12) in [expr.shape for expr in made.exprs if expr.op == "matmul"]


def test_a_number_of_each_row_keeps_channels() -> None:
    """It would stand in the channels that nobody reads, too."""
    b = Net()
    columns = b.input(ROWS, 1)
    total = b.elementwise("add", b.product(b.input(ROWS, 8), 12), columns)
    graph = b.graph(b.biased(total, 16))
    made = padded(graph, _plan(graph))
    assert (ROWS, 12) in [expr.shape for expr in made.exprs if expr.op == "matmul"]


def test_channels_that_a_softmax_of_tvm_s_sums_stay() -> None:
    b = Net()
    x = b.biased(b.input(ROWS, 8), 12)
    weights = b.operator("nn.softmax", (x,), b.shape(x), F16, axis=-1)
    graph = b.graph(b.biased(weights, 16))
    made = padded(graph, _plan(graph))
    assert (ROWS, 12) in [expr.shape for expr in made.exprs if expr.op == "nn.softmax"]


def test_a_weight_that_is_computed_keeps_its_shape() -> None:
    b = Net()
    turned = b.permute_dims(b.input(12, 12), (1, 0))
    x = b.input(ROWS, 12)
    graph = b.graph((b.matmul(x, b.input(12, 12), F16), b.matmul(x, turned, F16)))
    assert _plan(graph) == ()


def test_each_chain_of_products_is_planned_for_itself() -> None:
    b = Net()
    chains = [b.biased(b.biased(b.input(ROWS, 8), 12), 16) for _ in range(3)]
    graph = b.graph(tuple(chains))
    plan = _plan(graph)
    assert [(each.channels, each.filters) for each in plan] == [(8, 16), (16, 16)] * 3
    padded(graph, plan)


def test_nothing_is_padded_where_it_is_no_faster() -> None:
    b = Net()
    graph = b.graph(b.biased(b.biased(b.input(ROWS, 8), 12), 16))
    plan = _plan(graph, Costs(odd=-0.5))
    assert not any(each.is_padded for each in plan)
    assert padded(graph, plan) is graph


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=7)


@settings(max_examples=120, deadline=None)
@given(STEPS, st.sampled_from([6, 8, 12]), st.sampled_from([0.0, 0.25, 4.0]))
def test_any_network_computes_the_same(
    steps: list[tuple[int, int]], channels: int, move: float
) -> None:
    b = Net()
    values = [b.input(ROWS, channels)]
    for kind, which in steps:
        x = values[-1 - which % 2 % len(values)]
        n = (6, 8, 12, 20)[which % 4]
        match kind:
            case 0 | 1:
                x = b.biased(x, n, is_column=kind == 1)
            case 2:
                x = b.product(x, n)
            case 3:
                x = b.elementwise(("tanh", "sigmoid", "exp")[which % 3], b.elementwise("tanh", x))
            case 4:
                alike = [each for each in values if b.shape(each) == b.shape(x)]
                x = b.elementwise("add", x, alike[which % len(alike)])
            case 5:
                x = b.elementwise("multiply", x, b.weight(b.shape(x)[-1]))
            case 6:
                x = b.reshape(x, (2, ROWS // 2, b.shape(x)[-1]))
                x = b.reshape(b.elementwise("nn.relu", x), (ROWS, b.shape(x)[-1]))
            case 7:  # which would take padded channels for more numbers
                attrs = {"axis": -1 - which % 2}
                x = b.operator("nn.softmax", (x,), b.shape(x), F16, **attrs)
            case 8:
                x = b.matmul(x, b.input(b.shape(x)[-1], n), F16)
            case 9:  # a sum of products that share no input
                x = b.elementwise("add", b.product(b.input(ROWS, 8), b.shape(x)[-1]), x)
        values.append(x)
    graph = b.graph((values[-1], values[len(values) // 2]))
    padded(graph, _plan(graph, Costs(move=move)))
