"""Which products become one kernel with what combines them, by which times, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from boltgen.graph.attributes import Axis
from boltgen.graph.graph import HALF, INPUT, PART, Expr, GraphBuilder
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.joins import fuse_gated_mlp
from boltgen.passes.legalise import half_columns
from boltgen.passes.regions.products import find_products
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

join_pairs = checked(fuse_gated_mlp.join_pairs, others=True)
without_halves = checked(half_columns.without_halves, others=True, has_sizes=True)

F16, F32 = "float16", "float32"
M, K, F = 6, 8, 12
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Costs:
    """A pair takes `pair` us, another product one, and a move half of one."""

    pair: float = 1.25
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = (self.pair if one.single.epilogue.is_paired else 1.0 for one in workloads)
        return KernelTimes(times_us=tuple(times), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        # 2 F columns are read and F are written, of two bytes each.
        assert launches == 1
        assert bytes_moved in {M * 3 * F * 2, M * 4 * F * 2}  # the result may be cast first
        return 0.5


class Builder(GraphBuilder):
    def x(self) -> int:
        return self.add(Expr(op=INPUT, shape=(M, K), dtype=F16))

    def rows(self, *shape: int) -> int:
        return self.constant(RNG.uniform(-1, 1, shape).astype(np.float16))

    def product(self, x: int, columns: int = F, *, is_column: bool = False) -> int:
        if is_column:
            weight = self.permute_dims(self.rows(columns, K), (1, 0))
        else:
            weight = self.rows(K, columns)
        return self.matmul(x, weight, F16)

    def biased(self, x: int, columns: int = F) -> int:
        return self.elementwise("add", self.product(x, columns), self.rows(columns))

    def sliced(self, x: int, begin: int) -> int:
        shape = (*self.shape(x)[:-1], F)
        attrs = {"axis": len(shape) - 1, "begin": begin, "end": begin + F}
        return self.operator("strided_slice", (x,), shape, self.dtype(x), **attrs)


def nothing(workload: Workload) -> str | None:
    del workload
    return None


def _two_weights(b: Builder) -> int:
    x = b.x()
    gate = b.elementwise("nn.silu", b.biased(x))
    return b.elementwise("multiply", gate, b.biased(x))


def _column_major(b: Builder) -> int:
    x = b.x()
    up = b.product(x, is_column=True)
    return b.elementwise("multiply", up, b.elementwise("nn.silu", b.product(x, is_column=True)))


def _views(b: Builder) -> int:
    """Rows that are counted in two dimensions, as torch.export has them."""
    x = b.x()
    views = (b.reshape(b.product(x), (2, M // 2, F)) for _ in range(2))
    gate, up = views
    return b.elementwise("multiply", b.elementwise("nn.silu", gate), up)


def _slices(b: Builder) -> int:
    both = b.biased(b.x(), 2 * F)
    gate, up = b.sliced(both, 0), b.sliced(both, F)
    return b.elementwise("multiply", b.elementwise("nn.silu", gate), up)


def _parts(b: Builder) -> int:
    """As relax.op.split has it, the gate last, in FP32."""
    both = b.astype(b.product(b.x(), 2 * F), F32)
    split = b.add(Expr(op="split", args=(both,), shape=None, dtype="", attrs=Axis(-1)))
    up, gate = (b.operator(PART, (split,), (M, F), F32, index=index) for index in range(2))
    return b.astype(b.elementwise("multiply", b.elementwise("nn.silu", gate), up), F16)


FOUND = [_two_weights, _column_major, _views, _slices, _parts]


@pytest.mark.parametrize("build", FOUND)
def test_both_products_are_one_with_what_combines_them(build: Callable[[Builder], int]) -> None:
    b = Builder()
    graph = b.graph(build(b))
    found = join_pairs(graph, Costs(), nothing)
    (product,) = find_products(found.graph)
    layer = product.layer(found.graph)
    assert layer.epilogue.is_paired
    assert layer.problem.short == f"2 x gemm {M}x{F}x{K}"
    assert product.tail.output == len(found.graph) - 1  # nothing is left for others to compute
    assert all(load.kind is LoadKind.ROW for load in layer.loads)
    before = 1.5 if len(find_products(graph)) == 1 else 2.0
    (note,) = found.notes
    assert f"2 x gemm {M}x{F}x{K}: 1.2 us instead of {before:.1f} us, made up" in note
    # What no kernel computes is operators that IRs have.
    assert HALF not in operators(without_halves(found.graph))


@pytest.mark.parametrize("build", FOUND)
def test_times_decide(build: Callable[[Builder], int]) -> None:
    b = Builder()
    graph = b.graph(build(b))
    slower = 1.5 if len(find_products(graph)) == 1 else 2.0
    made = join_pairs(graph, Costs(pair=slower), nothing)
    assert made.graph is graph
    apart = "two products of one tensor and their gate are no single kernel"
    (choice,) = made.choices
    assert (choice.operators, choice.is_rewritten) == (("matmul",), False)
    times = f"{slower:.1f} us instead of {slower:.1f} us, made up"
    assert choice.reason == f"{apart}, 2 x gemm {M}x{F}x{K}: {times}"
    made = join_pairs(graph, Costs(), lambda _: "too few registers")
    assert made.graph is graph
    assert [each.reason for each in made.choices] == [f"{apart}: too few registers"]


def test_a_graph_without_halves_is_the_same_one() -> None:
    b = Builder()
    graph = b.graph(b.biased(b.x()))
    assert half_columns.without_halves(graph) is graph


def test_a_layer_after_the_other_has_a_pair_each() -> None:
    b = Builder()
    x = b.x()
    for _ in range(2):
        gated = b.elementwise("multiply", b.elementwise("nn.silu", b.product(x)), b.product(x))
        x = b.matmul(gated, b.rows(F, K), F16)
    found = join_pairs(b.graph(x), Costs(), nothing)
    assert len(found.notes) == 2
    paired = [each.tail.epilogue.is_paired for each in find_products(found.graph)]
    assert paired == [True, False, True, False]


def test_one_of_two_pairs_is_joined() -> None:
    b = Builder()
    x = b.x()
    for columns in (F, 2 * F):
        gate, up = (b.product(x, columns) for _ in range(2))
        gated = b.elementwise("multiply", b.elementwise("nn.silu", gate), up)
        x = b.matmul(gated, b.rows(columns, K), F16)

    def rejects(workload: Workload) -> str | None:
        return "too wide" if f"x{2 * F}x" in workload.short else None

    found = join_pairs(b.graph(x), Costs(), rejects)
    assert [each.is_rewritten for each in found.choices] == [True, False]
    assert len(found.notes) == 1
    paired = [each.tail.epilogue.is_paired for each in find_products(found.graph)]
    assert paired == [True, False, False, False, False]


def _read_again(b: Builder) -> tuple[int, ...]:
    x = b.x()
    up = b.product(x)
    return b.elementwise("multiply", b.elementwise("nn.silu", b.product(x)), up), up


def _of_other_rows(b: Builder) -> tuple[int, ...]:
    gate = b.elementwise("nn.silu", b.product(b.x()))
    return (b.elementwise("multiply", gate, b.product(b.x())),)


def _of_unknown_weights(b: Builder) -> tuple[int, ...]:
    x = b.x()
    weight = b.add(Expr(op=INPUT, shape=(K, F), dtype=F16))
    up = b.matmul(x, weight, F16)
    return (b.elementwise("multiply", b.elementwise("nn.silu", b.product(x)), up),)


def _thirds(b: Builder) -> tuple[int, ...]:
    whole = b.product(b.x(), 3 * F)
    return (b.elementwise("multiply", b.sliced(whole, 0), b.sliced(whole, F)),)


def _one_half(b: Builder) -> tuple[int, ...]:
    return (b.elementwise("nn.silu", b.sliced(b.product(b.x(), 2 * F), F)),)


def _apart_in_the_end(b: Builder) -> tuple[int, ...]:
    both = b.product(b.x(), 2 * F)
    return tuple(b.elementwise("nn.silu", b.sliced(both, begin)) for begin in (0, F))


def _of_batches(b: Builder) -> tuple[int, ...]:
    """Each matrix has a weight of its own."""
    x = b.add(Expr(op=INPUT, shape=(2, M, K), dtype=F16))
    gate, up = (b.matmul(x, b.rows(2, K, F), F16) for _ in range(2))
    return (b.elementwise("multiply", b.elementwise("nn.silu", gate), up),)


def _of_other_columns(b: Builder) -> tuple[int, ...]:
    """Each row's halves are of a half of the product's columns."""
    rows = b.reshape(b.product(b.x(), 2 * F), (2 * M, F))
    halves = []
    for begin in (0, F // 2):
        attrs = {"axis": 1, "begin": begin, "end": begin + F // 2}
        halves.append(b.operator("strided_slice", (rows,), (2 * M, F // 2), F16, **attrs))
    return (b.elementwise("multiply", b.elementwise("nn.silu", halves[0]), halves[1]),)


def _of_one_number(b: Builder) -> tuple[int, ...]:
    x = b.add(Expr(op=INPUT, shape=(1, K), dtype=F16))
    return (b.reshape(b.product(x, 1), ()),)


@pytest.mark.parametrize(
    "build",
    [
        _of_batches,
        _of_one_number,
        _of_other_columns,
        _read_again,
        _of_other_rows,
        _of_unknown_weights,
        _thirds,
        _one_half,
        _apart_in_the_end,
    ],
)
def test_other_products_stay_as_they_are(build: Callable[[Builder], tuple[int, ...]]) -> None:
    b = Builder()
    graph = b.graph(build(b))
    assert join_pairs(graph, Costs(pair=0.0), nothing).graph is graph
