"""Products of one tensor as one, and what is computed alike of their heads: values stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.joins import fuse_head_operators, fuse_qkv
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

join_siblings = checked(fuse_qkv.join_siblings, others=True)
with_joint_heads = checked(fuse_head_operators.with_joint_heads, others=True)
F16, F32 = "float16", "float32"
B, S, K, HEADS, D = 2, 6, 16, 4, 8


@dataclass(frozen=True)
class Costs:
    """Every kernel takes as long, whatever it computes, and `wide` us for each 64 columns."""

    wide: float = 0.0
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = (1.0 + self.wide * (one.single.problem.gemm.n // 64) for one in workloads)
        return KernelTimes(times_us=tuple(times), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        raise AssertionError((bytes_moved, launches))


class Net(GraphBuilder):
    """Grows the projections of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F16))

    def weight(self, *shape: int) -> int:
        return self.constant((self.rng.integers(-8, 9, shape) / 8).astype(np.float16))

    def number(self, value: float, wide: bool) -> int:
        return self.constant(np.array(value, F32 if wide else F16))

    def projected(self, x: int, heads: int, *, bias: bool = True, is_column: bool = False) -> int:
        n = heads * D
        b = self.permute_dims(self.weight(n, K), (1, 0)) if is_column else self.weight(K, n)
        made = self.matmul(x, b, F16)
        return self.elementwise("add", made, self.weight(n)) if bias else made

    def heads(self, x: int, heads: int) -> int:
        return self.permute_dims(self.reshape(x, (B, S, heads, D)), (0, 2, 1, 3))

    def cut(self, x: int, axis: int, begin: int, end: int) -> int:
        before = self.shape(x)
        shape = (*before[:axis], end - begin, *before[axis + 1 :])
        return self.operator("strided_slice", (x,), shape, F16, axis=axis, begin=begin, end=end)

    def rotated(self, x: int, cosines: int, sines: int, axis: int) -> int:
        """x cos + (-second half, first half) sin, along the last axis of heads."""
        half = self.shape(x)[axis] // 2
        first, second = self.cut(x, axis, 0, half), self.cut(x, axis, half, 2 * half)
        parts = self.elementwise("negative", second), first
        turned = self.operator("concat", parts, self.shape(x), F16, axis=axis)
        left = self.elementwise("multiply", x, cosines)
        return self.elementwise("add", left, self.elementwise("multiply", turned, sines))


def _apart(b: Net, *, bias: Sequence[bool] = (True,) * 3, is_column: bool = False) -> Graph:
    x = b.input(B, S, K)
    made = [b.heads(b.projected(x, HEADS, bias=each, is_column=is_column), HEADS) for each in bias]
    return b.graph(tuple(made))


@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize("bias", [(True,) * 3, (True, False, True), (False,) * 3, (False, True)])
def test_projections_are_one(bias: tuple[bool, ...], is_column: bool) -> None:
    made = join_siblings(_apart(Net(), bias=bias, is_column=is_column), Costs())
    found = operators(made.graph)
    assert (found.count("matmul"), found.count("strided_slice")) == (1, len(bias))
    assert found.count("add") == int(any(bias))
    assert f"{len(bias)} products of one tensor are one" in made.notes[0]
    assert f"1.0 us instead of {len(bias)}.0 us, made up" in made.notes[0]
    (choice,) = made.choices
    assert (choice.operators, choice.is_rewritten) == (("matmul",), True)


def _of_integers(b: Net, x: int, *, by_column: bool, is_relu: bool = False) -> int:
    """Heads of a product of bytes with a correction, a scale and a bias of columns, in FP16."""
    n = HEADS * D
    weight = b.constant(b.rng.integers(-127, 128, (n, K)).astype(np.int8))
    sums = b.matmul(x, b.permute_dims(weight, (1, 0)), "int32")
    offset = b.constant(b.rng.integers(-900, 900, n).astype(np.int32))
    steps = b.rng.uniform(2**-8, 2**-6, n if by_column else ()).astype(np.float32)
    numbers = b.constant(np.asarray(steps)), b.constant(np.zeros((), np.int8))
    whole = b.elementwise("add", sums, offset)
    made = b.operator("dequantize", (whole, *numbers), (B, S, n), F32, axis=2)
    made = b.elementwise("add", made, b.constant(b.rng.uniform(-1, 1, n).astype(np.float32)))
    made = b.elementwise("nn.relu", made) if is_relu else made
    return b.heads(b.astype(made, F16), HEADS)


def _bytes(b: Net) -> int:
    return b.add(Expr(op=INPUT, shape=(B, S, K), dtype="int8"))


@pytest.mark.parametrize("by_column", [(True, True, True), (True, False, True), (False, False)])
def test_projections_of_integers_are_one(by_column: tuple[bool, ...]) -> None:
    """Each has a scale of its own, or one for each column."""
    b = Net()
    x = _bytes(b)
    made = join_siblings(
        b.graph(tuple(_of_integers(b, x, by_column=each) for each in by_column)), Costs()
    )
    found = operators(made.graph)
    assert (found.count("matmul"), found.count("dequantize")) == (1, 1)
    assert found.count("strided_slice") == len(by_column)


def test_projections_of_integers_with_other_operators_behind_stay_apart() -> None:
    b = Net()
    x = _bytes(b)
    made = [_of_integers(b, x, by_column=True, is_relu=each) for each in (True, False)]
    assert operators(join_siblings(b.graph(tuple(made)), Costs()).graph).count("matmul") == 2


def test_projections_of_integers_with_numbers_of_rows_stay_apart() -> None:
    """As many rows as columns: the size alone would not tell them apart."""
    b = Net()
    x = b.add(Expr(op=INPUT, shape=(HEADS * D, K), dtype="int8"))
    made = []
    for _ in range(2):
        weight = b.constant(b.rng.integers(-127, 128, (HEADS * D, K)).astype(np.int8))
        sums = b.matmul(x, b.permute_dims(weight, (1, 0)), "int32")
        numbers = b.constant(np.float32(2**-6).reshape(())), b.constant(np.zeros((), np.int8))
        wide = b.operator("dequantize", (sums, *numbers), b.shape(sums), F32, axis=1)
        rows = b.constant(b.rng.uniform(1, 2, (HEADS * D, 1)).astype(np.float32))
        scaled = b.astype(b.elementwise("multiply", wide, rows), F16)
        made.append(b.permute_dims(b.reshape(scaled, (HEADS * D, HEADS, D)), (1, 0, 2)))
    assert operators(join_siblings(b.graph(tuple(made)), Costs()).graph).count("matmul") == 2


def test_projections_of_integers_whose_operands_are_the_other_way_round_stay_apart() -> None:
    b = Net()
    x = _bytes(b)
    made = []
    for is_first in (True, False):
        weight = b.constant(b.rng.integers(-127, 128, (HEADS * D, K)).astype(np.int8))
        sums = b.matmul(x, b.permute_dims(weight, (1, 0)), "int32")
        numbers = b.constant(np.float32(2**-6).reshape(())), b.constant(np.zeros((), np.int8))
        wide = b.operator("dequantize", (sums, *numbers), b.shape(sums), F32, axis=2)
        bias = b.constant(b.rng.uniform(-1, 1, HEADS * D).astype(np.float32))
        total = b.elementwise("add", *((wide, bias) if is_first else (bias, wide)))
        made.append(b.heads(b.astype(total, F16), HEADS))
    assert operators(join_siblings(b.graph(tuple(made)), Costs()).graph).count("matmul") == 2


def test_projections_stay_apart_where_one_is_slower() -> None:
    graph = _apart(Net())
    made = join_siblings(graph, Costs(wide=4.0))
    assert made.graph.exprs == graph.exprs
    assert made.notes == ()
    (choice,) = made.choices
    assert (choice.operators, choice.shape, choice.is_rewritten) == (("matmul",), (B, S, 32), False)
    assert choice.reason == (
        "3 products of one tensor stay apart: they would be one, gemm 12x96x16: "
        "5.0 us instead of 3.0 us, made up"
    )


def test_projections_of_other_tensors_and_layouts_stay_apart() -> None:
    b = Net()
    x, y = b.input(B, S, K), b.input(B, S, K)
    made = [
        b.heads(b.projected(x, HEADS), HEADS),
        b.heads(b.projected(y, HEADS), HEADS),
        b.heads(b.projected(x, HEADS, is_column=True), HEADS),
    ]
    found = operators(join_siblings(b.graph(tuple(made)), Costs()).graph)
    assert found.count("matmul") == 3


def test_a_projection_that_no_move_cuts_out_stays_apart() -> None:
    b = Net()
    x = b.input(B, S, K)
    one, two = (b.projected(x, HEADS) for _ in range(2))
    graph = b.graph((b.heads(one, HEADS), b.elementwise("nn.relu", two)))
    made = join_siblings(graph, Costs())
    assert operators(made.graph).count("matmul") == 2
    assert [each.reason for each in made.choices] == [
        "it is joined with no other product of its tensor: its epilogue is more than a bias"
    ]


@pytest.mark.parametrize("is_cast", [True, False])
@pytest.mark.parametrize(("how", "is_joined"), [("rotated", True), ("not sliced", False)])
def test_projections_that_are_rotated_are_one(how: str, *, is_joined: bool, is_cast: bool) -> None:
    """A rotary embedding slices the heads of each projection in any case."""
    b = Net()
    x = b.input(B, S, K)
    table = b.weight(S, 1, D), b.weight(S, 1, D)

    def rotated(projection: int) -> int:
        y = b.reshape(projection, (B, S, HEADS, D))
        if how == "rotated" and not is_cast:
            return b.rotated(y, *table, 3)
        first, second = b.cut(y, 3, 0, D // 2), b.cut(y, 3, D // 2, D)
        turned = b.operator("concat", (second, first), b.shape(y), F16, axis=3)
        if how == "not sliced":
            turned = b.input(*b.shape(y))
        left = b.elementwise("multiply", b.astype(y, F32) if is_cast else y, b.number(0.5, is_cast))
        right = b.elementwise("multiply", turned, table[1])
        right = b.astype(right, F32) if is_cast else right
        return b.elementwise("add", left, right)

    parts = [rotated(b.projected(x, HEADS)) for _ in range(2)]
    made = join_siblings(b.graph(tuple(parts)), Costs())
    assert operators(made.graph).count("matmul") == (1 if is_joined else 2)


def _one_of_heads(b: Net, x: int) -> int:
    return b.heads(b.projected(x, HEADS), HEADS)


def _of_an_input(b: Net, x: int) -> int:
    made = b.elementwise("add", b.matmul(x, b.weight(K, HEADS * D), F16), b.input(HEADS * D))
    return b.heads(made, HEADS)


def _of_a_computed_weight(b: Net, x: int) -> int:
    return b.heads(b.matmul(x, b.input(K, HEADS * D), F16), HEADS)


def _of_many_matrices(b: Net, x: int) -> int:
    return b.heads(b.matmul(x, b.weight(B, K, HEADS * D), F16), HEADS)


def _returned(b: Net, x: int) -> int:
    return b.projected(x, HEADS)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_of_an_input, "its weight or an operand of its epilogue is not constant"),
        (_of_a_computed_weight, "its weight or an operand of its epilogue is not constant"),
        (_of_many_matrices, "it is a convolution, a batch of products, or writes an image"),
        (_returned, "its readers take whole rows, so that slicing would be a pass over memory"),
    ],
)
def test_a_projection_that_is_not_joined_says_why(
    build: Callable[[Net, int], int], reason: str
) -> None:
    b = Net()
    x = b.input(B, S, K)
    made = join_siblings(b.graph((_one_of_heads(b, x), build(b, x))), Costs())
    assert operators(made.graph).count("matmul") == 2
    found = f"it is joined with no other product of its tensor: {reason}"
    assert found in [each.reason for each in made.choices]


@pytest.mark.parametrize(("wide", "is_joined"), [(0.5, True), (1.0, False)])
def test_projections_are_one_only_where_that_is_faster(wide: float, is_joined: bool) -> None:
    """Two of 32 columns take 2 us, and one of 64 takes `wide` more than 1 us."""
    made = join_siblings(_apart(Net(), bias=(False, False)), Costs(wide=wide))
    assert operators(made.graph).count("matmul") == (1 if is_joined else 2)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 2)), max_size=5),
    st.booleans(),
)
def test_any_projections_compute_the_same(
    steps: list[tuple[int, bool, int]], is_column: bool
) -> None:
    b = Net()
    x = b.input(B, S, K)
    results = [x]
    for heads, bias, kind in steps:
        made = b.projected(x, heads, bias=bias, is_column=is_column)
        match kind:
            case 0:
                results.append(b.heads(made, heads))
            case 1:
                results.append(b.cut(made, 2, D // 2, heads * D))
            case 2:
                results.append(b.elementwise("nn.relu", made))
    join_siblings(b.graph(tuple(results)), Costs())


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("is_alike", [True, False])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("is_of_heads", [True, False])
def test_heads_are_rotated_at_once(
    kv_heads: int, is_alike: bool, others: int, is_of_heads: bool
) -> None:
    """Heads are cut out along their columns or along themselves; `others` may lie before them."""
    b = Net()
    x = b.input(B, S, K)
    whole = b.projected(x, others + HEADS + kv_heads)
    if is_of_heads:
        whole = b.reshape(whole, (B, S, others + HEADS + kv_heads, D))
    unit = 1 if is_of_heads else D
    tables = [(b.weight(1, S, 1, D), b.weight(1, S, 1, D)) for _ in range(2)]
    parts = []
    for place, (begin, count) in enumerate(((others, HEADS), (others + HEADS, kv_heads))):
        own = b.cut(whole, 2, begin * unit, (begin + count) * unit)
        heads = b.reshape(own, (B, S, count, D))
        table = tables[0] if is_alike else tables[place]
        parts.append(b.permute_dims(b.rotated(heads, *table, 3), (0, 2, 1, 3)))
    q, k = parts
    if kv_heads != HEADS:
        k = b.reshape(k, (B, kv_heads, 1, S, D))
        shape = (B, kv_heads, HEADS // kv_heads, S, D)
        k = b.reshape(b.operator("broadcast_to", (k,), shape, F16), (B, HEADS, S, D))
    graph = b.graph(b.matmul(q, b.permute_dims(k, (0, 1, 3, 2)), F16))
    made = with_joint_heads(graph)
    assert operators(made.graph).count("concat") == (1 if is_alike else 2)
    (choice,) = made.choices
    assert choice.is_rewritten == is_alike
    assert {"multiply", "concat", "add"} <= set(choice.operators)
    how = "at once" if is_alike else "apart: the operators or their other operands differ"
    assert choice.reason == (
        f"the operators on {HEADS} and {kv_heads} heads of one matmul are computed {how}"
    )


def test_heads_that_others_read_are_rotated_apart() -> None:
    b = Net()
    whole = b.projected(b.input(B, S, K), 2 * HEADS)
    table = b.weight(1, S, 1, D), b.weight(1, S, 1, D)
    q, k = (
        b.rotated(
            b.reshape(b.cut(whole, 2, n * HEADS * D, (n + 1) * HEADS * D), (B, S, HEADS, D)),
            *table,
            3,
        )
        for n in range(2)
    )
    turned = [b.permute_dims(each, order) for each, order in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)))]
    graph = b.graph((b.matmul(*turned, F16), q))
    assert operators(with_joint_heads(graph).graph).count("concat") == 2
