"""Which sums of a product's result its kernel writes, by which times, and which stay with TVM."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, REGION, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import LoadKind, Reduction
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.outline import CarvedRegion, Symbols
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.carved import carve

F16, F32 = "float16", "float32"
M, N, K = 6, 16, 8


@dataclass(frozen=True)
class Costs:
    """A kernel takes 1 us, `reducing` more where it reduces, and `rounding` where it rounds a sum;
    a pass over memory takes 5.
    """

    reducing: float = 0.0
    rounding: float = 0.0
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        stores = [one.single.epilogue.reductions for one in workloads]
        rounded = [any(each.dtype is not DType.F32 for each in one) for one in stores]
        more = [
            self.reducing * bool(one) + self.rounding * narrow
            for one, narrow in zip(stores, rounded, strict=True)
        ]
        return KernelTimes(times_us=tuple(1.0 + each for each in more), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        assert (bytes_moved, launches) != (0, 0)
        return 5.0


class Builder(GraphBuilder):
    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F16))

    def product(self) -> int:
        """relu(a b), (M, N) in FP16."""
        made = self.operator("matmul", (self.input(M, K), self.input(K, N)), (M, N), F16)
        return self.elementwise("nn.relu", made)

    def cast(self, x: int, dtype: str = F32) -> int:
        return self.operator("astype", (x,), self.shape(x), dtype, from_dtype=self.dtype(x))

    def reduce(self, op: str, x: int, *axes: int, keepdims: bool = False) -> int:
        shape = self.shape(x)
        kept = [
            1 if i in axes else each for i, each in enumerate(shape) if keepdims or i not in axes
        ]
        attrs = {"axis": axes, "keepdims": keepdims}
        return self.operator(op, (x,), tuple(kept), self.dtype(x), **attrs)


def carved(
    build: Callable[[Builder], Any], costs: Costs | None = None
) -> tuple[Graph, CarvedRegion]:
    builder = Builder()
    graph, (region,) = carve(
        builder.graph(build(builder)), Symbols(()), reductions=costs or Costs()
    )
    return graph, region


def operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op not in {INPUT, REGION, "part"}]


@pytest.mark.parametrize(
    ("op", "axis", "kind", "text"),
    [
        ("sum", 1, LoadKind.COLUMN, "column float32: sum(relu(acc))"),
        ("sum", 0, LoadKind.ROW, "row float32: sum(relu(acc))"),
        ("mean", 1, LoadKind.COLUMN, "column float32: sum(multiply(relu(acc), 0.0625))"),
        ("mean", 0, LoadKind.ROW, "row float32: sum(multiply(relu(acc), 0.166667))"),
    ],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_and_means_of_rows_and_columns(
    op: str, axis: int, kind: LoadKind, text: str, keepdims: bool
) -> None:
    def build(b: Builder) -> Any:
        y = b.product()
        return (y, b.reduce(op, b.cast(y), axis, keepdims=keepdims))

    graph, made = carved(build)
    epilogue = made.region.workload.single.epilogue
    assert epilogue.describe() == f"tensor: relu(acc); {text}"
    assert epilogue.reductions[0].kind is kind
    assert operators(graph) == []
    assert math.prod(graph[graph.results[1]].static_shape) == (M, N)[1 - axis]


def test_both_moments_of_a_row_are_written_at_once() -> None:
    def build(b: Builder) -> Any:
        y = b.product()
        wide = b.cast(y)
        squares = b.elementwise("multiply", wide, wide)
        return (y, b.reduce("sum", wide, 1), b.reduce("sum", squares, 1))

    graph, made = carved(build)
    found = [store.reduction for store in made.region.workload.single.epilogue.reductions]
    assert set(found) == {Reduction.SUM, Reduction.SUM_OF_SQUARES}
    assert operators(graph) == []


def test_a_sum_is_rounded_where_only_a_cast_reads_it() -> None:
    def build(b: Builder, *, read_twice: bool) -> Any:
        y = b.product()
        total = b.reduce("sum", b.cast(y), 0)
        narrow = b.cast(total, F16)
        return (y, narrow, *([total] if read_twice else []))

    graph, made = carved(lambda b: build(b, read_twice=False))
    assert made.region.workload.single.epilogue.reductions[0].dtype is DType.F16
    assert operators(graph) == []
    assert graph[graph.results[1]].dtype == F16
    graph, made = carved(lambda b: build(b, read_twice=True))
    assert made.region.workload.single.epilogue.reductions[0].dtype is DType.F32
    assert operators(graph) == ["astype"]


def test_a_sum_is_not_rounded_where_no_kernel_does_or_a_cast_is_faster() -> None:
    def build(b: Builder) -> Any:
        y = b.product()
        return (y, b.cast(b.reduce("sum", b.cast(y), 0), F16))

    def rejects(workload: Workload) -> str | None:
        stores = workload.single.epilogue.reductions
        return "rounded" if any(each.dtype is DType.F16 for each in stores) else None

    for costs, refused in ((Costs(), rejects), (Costs(rounding=9.0), None)):
        builder = Builder()
        graph, (made,) = carve(
            builder.graph(build(builder)),
            Symbols(()),
            reductions=costs,
            **({"rejects": refused} if refused else {}),
        )
        assert made.region.workload.single.epilogue.reductions[0].dtype is DType.F32
        assert operators(graph) == ["astype"]


def test_an_image_has_sums_of_its_own() -> None:
    def build(b: Builder) -> Any:
        attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
        attrs |= {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        x, w = b.input(2, 5, 4, 8), b.input(N, 1, 1, 8)
        y = b.operator("nn.conv2d", (x, w), (2, 5, 4, N), F16, **attrs)
        return b.reduce("mean", b.cast(y), 1, 2)

    graph, made = carved(build)
    text = "tensor: acc; row float32: sum(multiply(acc, 0.05))"
    assert made.region.workload.single.epilogue.describe() == text
    assert operators(graph) == []


def _read_twice(b: Builder) -> Any:
    wide = b.cast(b.product())
    return (b.reduce("max", wide, 1), b.reduce("sum", wide, 1))


def _of_all(b: Builder) -> Any:
    return b.reduce("sum", b.cast(b.product()), 0, 1)


def _in_half(b: Builder) -> Any:
    return b.reduce("sum", b.product(), 1)


def _maximum(b: Builder) -> Any:
    return b.reduce("max", b.cast(b.product()), 1)


@pytest.mark.parametrize("build", [_read_twice, _of_all, _in_half, _maximum])
def test_what_stays_with_tvm(build: Callable[[Builder], Any]) -> None:
    graph, made = carved(build)
    assert not made.region.workload.single.epilogue.stores
    assert {"sum", "max", "mean"} & set(operators(graph))


@pytest.mark.parametrize(
    ("op", "axis", "is_fused"), [("sum", 1, True), ("mean", 1, True), ("sum", 0, False)]
)
def test_of_an_open_number_of_rows_each_is_summed_and_columns_are_not(
    op: str, axis: int, is_fused: bool
) -> None:
    rows = symbolic(Symbol("rows", 1, 64))

    def build(b: Builder) -> Any:
        args = (b.input(rows, K), b.constant(np.zeros((K, N), np.float16)))
        made = b.cast(b.operator("matmul", args, (rows, N), F16))
        return b.reduce(op, made, axis)

    graph, made = carved(build)
    assert bool(made.region.workload.single.epilogue.reductions) is is_fused
    assert (op in operators(graph)) is not is_fused


def test_a_mean_of_open_images_is_one_of_each() -> None:
    images = symbolic(Symbol("images", 1, 8))

    def build(b: Builder) -> Any:
        attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
        attrs |= {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        x, w = b.input(images, 5, 4, 8), b.input(N, 1, 1, 8)
        y = b.operator("nn.conv2d", (x, w), (images, 5, 4, N), F16, **attrs)
        return b.reduce("mean", b.cast(y), 1, 2)

    graph, made = carved(build)
    text = "tensor: acc; row float32: sum(multiply(acc, 0.05))"
    assert made.region.workload.single.epilogue.describe() == text
    assert operators(graph) == []


@pytest.mark.parametrize(("more", "is_fused"), [(4.9, True), (5.1, False)])
def test_times_decide(more: float, is_fused: bool) -> None:
    def build(b: Builder) -> Any:
        return b.reduce("sum", b.cast(b.product()), 1)

    graph, made = carved(build, Costs(reducing=more))
    assert bool(made.region.workload.single.epilogue.reductions) is is_fused
    assert operators(graph) == ([] if is_fused else ["astype", "sum"])


@pytest.mark.parametrize("is_of_product", [True, False])
def test_a_cast_that_follows_another_product_is_written_beside_what_it_casts(
    is_of_product: bool,
) -> None:
    """A residual in FP32, which a norm reads, and in FP16, which is added to another product."""
    b = Builder()
    residual = b.add(Expr(op=INPUT, shape=(M, N), dtype=F32))
    wide = b.elementwise("add", b.cast(b.product()), residual)
    half = b.cast(wide, F16)
    other = b.product() if is_of_product else b.input(M, N)
    made = b.graph((b.elementwise("tanh", wide), b.elementwise("add", half, other)))
    graph, regions = carve(made, Symbols(()))
    stores = regions[0].region.workload.single.epilogue.stores
    assert len(stores) == 2 * is_of_product
    assert ("astype" in operators(graph)) != is_of_product
