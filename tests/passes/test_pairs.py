"""Pairs of pixels as one: the same image in memory, and the same sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import InvalidProblemError
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.passes.padding import pairs
from boltgen.problems.conv2d.pairs import paired
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.differential import checked

with_paired_pixels = checked(pairs.with_paired_pixels)
FIRST = Conv2d(n=2, h=12, w=12, c=4, k=8, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3))


class Costs:
    """Vectors of 8 channels take `wide`, those of 4 take 2 us."""

    move_origin = "made up"

    def __init__(self, wide: float = 1.0) -> None:
        self.wide = wide

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = (self.wide if one.single.problem.a_shape[-1] == 8 else 2.0 for one in workloads)
        return KernelTimes(times_us=tuple(times), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        raise AssertionError("nothing is moved")


def graph_of(problem: Conv2d, *, readers: int = 1) -> Graph:
    rng, b = np.random.default_rng(1), GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=problem.a_shape, dtype="float16"))
    w = b.constant((rng.integers(-8, 9, problem.b_shape) / 8).astype(np.float16))
    attrs = {"strides": problem.stride, "padding": problem.padding}
    attrs |= {"dilation": problem.dilation, "groups": 1}
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    made = [
        b.operator("nn.conv2d", (x, w), problem.d_shape, "float16", **attrs, **layouts)
        for _ in range(readers)
    ]
    return b.graph(made[0] if readers == 1 else tuple(made))


def convolutions(graph: Graph) -> list[tuple[int, ...]]:
    return [graph[expr.args[0]].static_shape for expr in graph.exprs if expr.op == "nn.conv2d"]


def test_the_first_layer_of_resnet_has_a_filter_of_four_pairs() -> None:
    pairs = paired(FIRST)
    assert pairs is not None
    found = pairs.problem
    assert (found.w, found.c, found.s, found.stride) == (6, 8, 4, (2, 1))
    assert found.padding == (3, 2, 3, 1)
    assert found.d_shape == FIRST.d_shape
    made = with_paired_pixels(graph_of(FIRST), Costs(), DType.F32)
    assert convolutions(made) == [(2, 12, 6, 8)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 9), st.integers(2, 7), st.integers(1, 7),
    st.tuples(st.integers(0, 4), st.integers(0, 4)), st.sampled_from((1, 2, 3)),
)  # fmt: skip
def test_sums_are_the_same(
    h: int, pixels: int, s: int, sides: tuple[int, int], stride: int
) -> None:
    left, right = sides
    try:
        problem = Conv2d(
            n=1, h=h, w=2 * pixels, c=4, k=8, r=2, s=s,
            stride=(stride, 2), padding=(1, left, 0, right),
        )  # fmt: skip
    except InvalidProblemError:  # the filter does not fit
        return
    pairs = paired(problem)
    assert pairs is not None
    found = pairs.problem
    assert found.d_shape == problem.d_shape
    made = with_paired_pixels(graph_of(problem), Costs(), DType.F32)
    assert convolutions(made) == [found.a_shape]


@pytest.mark.parametrize(
    "change",
    [
        {"c": 3},
        {"c": 8},
        {"w": 13},
        {"stride": (2, 1)},
        {"stride": (2, 3)},
        {"dilation": (1, 2), "s": 3},
        {"s": 2, "padding": (3, 0, 3, 0), "w": 14, "stride": (2, 2), "r": 7, "c": 2},
    ],
)
def test_other_convolutions_stay(change: dict[str, object]) -> None:
    values = {name: getattr(FIRST, name) for name in Conv2d.__slots__} | change
    assert paired(Conv2d(**values)) is None


def test_a_slower_kernel_and_an_image_that_others_read_stay_as_they_are() -> None:
    for wide in (2.0, 3.0):  # which is as fast, and slower
        made = with_paired_pixels(graph_of(FIRST), Costs(wide), DType.F32)
        assert convolutions(made) == [FIRST.a_shape]
    both = graph_of(FIRST, readers=2)
    assert convolutions(with_paired_pixels(both, Costs(), DType.F32)) == [FIRST.a_shape] * 2


def test_the_sums_of_integers_may_be_dequantised_behind_it() -> None:
    """The first layer of a quantised model: its result has another type than its sums."""
    b, rng = GraphBuilder(), np.random.default_rng(1)
    x = b.add(Expr(op=INPUT, shape=FIRST.a_shape, dtype="int8"))
    w = b.constant(rng.integers(-127, 128, FIRST.b_shape).astype(np.int8))
    attrs = {"strides": FIRST.stride, "padding": FIRST.padding}
    attrs |= {"dilation": FIRST.dilation, "groups": 1}
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    sums = b.operator("nn.conv2d", (x, w), FIRST.d_shape, "int32", **attrs, **layouts)
    numbers = b.constant(np.float32(2**-10).reshape(())), b.constant(np.zeros((), np.int8))
    made = b.operator("dequantize", (sums, *numbers), FIRST.d_shape, "float32", axis=3)
    graph = b.graph(b.elementwise("nn.relu", made))
    assert convolutions(with_paired_pixels(graph, Costs(), DType.F32)) != [FIRST.a_shape]


def test_an_image_may_have_a_row_of_its_own_behind_it() -> None:
    b, rng = GraphBuilder(), np.random.default_rng(1)
    whole = graph_of(FIRST)
    names: dict[int, int] = {}
    for index, expr in enumerate(whole.exprs):
        names[index] = b.add(replace(expr, args=tuple(names[arg] for arg in expr.args)))
    n, *_, k = FIRST.d_shape
    row = b.constant(rng.standard_normal((n, 1, 1, k)).astype(np.float16))
    graph = b.graph(b.elementwise("add", names[len(whole.exprs) - 1], row))
    assert convolutions(with_paired_pixels(graph, Costs(), DType.F32)) != [FIRST.a_shape]
