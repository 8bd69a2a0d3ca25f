"""Which norms the products around them compute, by which times, and which keep their kernel."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import IMAGE_NORM, INPUT, NORMED, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Reduction
from boltgen.passes.legalise import norm_of_sums
from boltgen.passes.norms import fuse_into_matmuls
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.products import find_products
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.norm.problem import Norm
from boltgen.problems.workload import Workload
from tests.passes.carved import carve
from tests.passes.differential import checked

without_normed = checked(norm_of_sums.without_normed, others=True, has_sizes=True, unit=2.0**-24)
norms_in_products = checked(fuse_into_matmuls.norms_in_products, others=True, unit=2.0**-24)

F16, F32 = "float16", "float32"
M, WIDE, NARROW = 6, 16, 8
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Costs:
    """A norm takes `norm` us, anything else one, and each reduction half of one more, or `part`
    where it is of some columns.
    """

    norm: float = 2.0
    part: float = 0.25
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        def time_us(one: Workload) -> float:
            if isinstance(one.single.problem, Norm):
                return self.norm
            reductions = one.single.epilogue.reductions
            return 1.0 + sum(self.part if each.columns else 0.5 for each in reductions)

        return KernelTimes(times_us=tuple(map(time_us, workloads)), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        raise AssertionError((bytes_moved, launches))


class Builder(GraphBuilder):
    scale: float = 1.0
    wide: int = WIDE

    def rows(self, *shape: int) -> int:
        return self.constant(RNG.uniform(0.5, 1.5, shape).astype(np.float16))

    def product(self, x: int, columns: int) -> int:
        weight = self.rows(self.shape(x)[-1], columns)
        made = self.operator("matmul", (x, weight), (M, columns), F16)
        return self.elementwise("add", made, self.rows(columns))

    def x(self) -> int:
        """A product's result, (M, wide)."""
        return self.product(self.add(Expr(op=INPUT, shape=(M, NARROW), dtype=F16)), self.wide)

    def norm(self, x: int) -> int:
        args = (x, self.constant(np.full(self.wide, self.scale, np.float16)), self.rows(self.wide))
        attrs = {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}
        return self.operator("nn.layer_norm", args, self.shape(x), F16, **attrs)


def nothing(workload: Workload) -> str | None:
    del workload
    return None


def operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs]


def test_a_norm_is_within_the_products_around_it() -> None:
    b = Builder()
    normed = b.norm(b.x())
    y = b.elementwise("nn.relu", b.product(normed, NARROW))
    z = b.elementwise("add", b.product(y, WIDE), normed)
    made = norms_in_products(b.graph(z), Costs(), nothing)
    found = operators(made.graph)
    assert found.count(NORMED) == 2
    assert "nn.layer_norm" not in found
    # The biases are in the shifts; the one before the norm is not.
    assert found.count("add") == 1
    assert "4.0 us instead of 5.0 us, made up" in made.notes[0]
    assert str(WIDE) in made.notes[0]


def test_the_kernel_before_a_fused_norm_writes_its_sums_whatever_they_cost() -> None:
    """Others have been compared before: the norm has no kernel any more."""
    b = Builder()
    made = norms_in_products(b.graph(b.product(b.norm(b.x()), NARROW)), Costs(), nothing)
    _, carved = carve(made.graph, Symbols(()), reductions=Costs(part=99.0))
    found = [bool(each.region.workload.single.epilogue.reductions) for each in carved]
    assert found == [True, False]


def test_a_norm_that_is_faster_alone_keeps_its_kernel() -> None:
    b = Builder()
    graph = b.graph(b.product(b.norm(b.x()), NARROW))
    made = norms_in_products(graph, Costs(norm=1.0), nothing)
    assert made.graph is graph
    (choice,) = made.choices
    assert (choice.operators, choice.shape) == (("nn.layer_norm", "matmul"), (M, WIDE))
    assert not choice.is_rewritten
    assert choice.reason == (
        "a norm of rows of 16 keeps its kernel; within the products around it, by moments of whole "
        "rows: 3.0 us instead of 3.0 us, made up"
    )


def _returned(b: Builder) -> Any:
    normed = b.norm(b.x())
    return (b.product(normed, NARROW), normed)


def _of_an_input(b: Builder) -> Any:
    return b.product(b.norm(b.add(Expr(op=INPUT, shape=(M, WIDE), dtype=F16))), NARROW)


def _read_by_others(b: Builder) -> Any:
    normed = b.norm(b.x())
    largest = b.operator("max", (normed,), (M,), F16, axis=(1,), keepdims=False)
    return (b.product(normed, NARROW), largest)


def _not_multiplied(b: Builder) -> Any:
    return b.elementwise("add", b.product(b.product(b.x(), NARROW), WIDE), b.norm(b.x()))


def _convolved(b: Builder) -> Any:
    """By a filter of one pixel, whose weights are no matrix."""
    image = b.operator("reshape", (b.norm(b.x()),), (1, 2, M // 2, WIDE), F16)
    attrs = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    args, shape = (image, b.rows(NARROW, 1, 1, WIDE)), (1, 2, M // 2, NARROW)
    return b.operator("nn.conv2d", args, shape, F16, **attrs, **layouts)


def _beyond_fp16(b: Builder) -> Any:
    b.scale = 60000.0
    return b.product(b.norm(b.x()), NARROW)


def _below_fp16(b: Builder) -> Any:
    b.scale = 1e-6
    return b.product(b.norm(b.x()), NARROW)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_returned, "its readers are not all matmuls"),
        (_of_an_input, "no matmul's kernel writes the rows"),
        (_read_by_others, "its readers are not all matmuls"),
        (_convolved, "its readers are not all matmuls"),
        (_not_multiplied, "its readers are not all matmuls"),
        (_beyond_fp16, "the weights after it, times its scale, are not exact"),
        (_below_fp16, "the weights after it, times its scale, are not exact"),
    ],
)
def test_other_norms_keep_their_kernels(build: Any, reason: str) -> None:
    b = Builder()
    graph = b.graph(build(b))
    made = norms_in_products(graph, Costs(norm=99.0), nothing)
    assert made.graph is graph
    (choice,) = made.choices
    assert choice.operators == ("nn.layer_norm",)
    assert choice.reason.startswith(f"a norm keeps its kernel: {reason}")


def test_a_norm_keeps_its_kernel_where_a_product_with_sums_has_none() -> None:
    def rejects(workload: Workload) -> str | None:
        return "no sums" if workload.single.epilogue.reductions else None

    b = Builder()
    graph = b.graph(b.product(b.norm(b.x()), NARROW))
    made = norms_in_products(graph, Costs(), rejects)
    assert made.graph is graph
    (choice,) = made.choices
    assert choice.reason == (
        "a norm of rows of 16 keeps its kernel, without moments of whole rows: no sums"
    )


@pytest.mark.parametrize("place", [1, 2])
def test_a_norm_of_an_unknown_scale_or_shift_keeps_its_kernel(place: int) -> None:
    b = Builder()
    x = b.x()
    args = [x, b.rows(WIDE), b.rows(WIDE)]
    args[place] = b.add(Expr(op=INPUT, shape=(WIDE,), dtype=F16))
    attrs = {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}
    normed = b.operator("nn.layer_norm", args, (M, WIDE), F16, **attrs)
    graph = b.graph(b.product(normed, NARROW))
    made = norms_in_products(graph, Costs(), nothing)
    assert made.graph is graph
    (choice,) = made.choices
    assert choice.reason.endswith("its epilogue is more than a constant scale and shift")


def test_a_norm_keeps_its_kernel_where_products_are_summed_in_fp16() -> None:
    b = Builder()
    graph = b.graph(b.product(b.norm(b.x()), NARROW))
    assert norms_in_products(graph, Costs(), nothing, DType.F16).graph is graph


def _long(b: Builder) -> Graph:
    """A norm of rows of two parts, multiplied once and added once."""
    b.wide = 128
    normed = b.norm(b.x())
    return b.graph(b.elementwise("add", b.product(b.product(normed, NARROW), b.wide), normed))


# Five us before: three products of 1 us and a norm of 2 us. Without the norm the first product also
# writes two moments, each of which takes `part` us, or half of one where it is of whole rows.
@pytest.mark.parametrize(("part", "columns", "once"), [(0.25, 64, 3.5), (9.0, 0, 4.0)])
def test_moments_are_of_some_columns_each_where_that_is_faster(
    part: float, columns: int, once: float
) -> None:
    asked: list[Workload] = []

    def rejects(workload: Workload) -> str | None:
        asked.append(workload)
        return None

    b = Builder()
    graph = _long(b)
    found = norms_in_products(graph, Costs(part=part), rejects)
    assert operators(found.graph).count(NORMED) == 2
    (note,) = found.notes
    assert f"of 128 is within the products around it: {once:.1f} us instead of 5.0" in note
    carved = find_products(found.graph)
    epilogues = [product.tail.epilogue for product in carved]
    parts = [load.parts for each in epilogues for load in each.loads if load.dtype is DType.F32]
    assert max(parts) == (128 // columns if columns else 1)
    last = [one for one in asked if one.single.epilogue.reductions][-1]
    assert {store.columns for store in last.single.epilogue.reductions} == {columns}
    assert NORMED not in operators(without_normed(found.graph))


def test_what_no_kernel_computes_is_operators_that_irs_have() -> None:
    b = Builder()
    normed = b.norm(b.x())
    graph = b.graph(b.elementwise("add", b.product(b.product(normed, NARROW), WIDE), normed))
    made = without_normed(norms_in_products(graph, Costs(), nothing).graph)
    assert NORMED not in operators(made)
    assert operators(made).count("sum") == 2


def test_a_graph_without_norms_of_sums_is_the_same_one() -> None:
    b = Builder()
    graph = b.graph(b.norm(b.x()))
    assert norm_of_sums.without_normed(graph) is graph


def test_the_sums_are_both_moments() -> None:
    b = Builder()
    asked: list[Workload] = []

    def rejects(workload: Workload) -> str | None:
        asked.append(workload)
        return None

    norms_in_products(b.graph(b.product(b.norm(b.x()), NARROW)), Costs(), rejects)
    found = {store.reduction for one in asked for store in one.single.epilogue.reductions}
    assert found == {Reduction.SUM, Reduction.SUM_OF_SQUARES}


norms_once = checked(fuse_into_matmuls.norms_in_products, unit=2.0**-24)
_OPTIONS = ("rms", "scale", "shift", "bias", "column", "view", "wide", "first", "twice")


def _weighted(b: Builder, x: int, columns: int, options: set[str]) -> int:
    k = b.shape(x)[-1]
    if "column" in options:
        weight = b.permute_dims(b.rows(columns, k), (1, 0))
    else:
        weight = b.rows(k, columns)
    made = b.matmul(x, weight, F16)
    return b.elementwise("add", made, b.rows(columns)) if "bias" in options else made


def _around(options: set[str]) -> Graph:
    """A norm, multiplied and added, with what the options name."""
    b = Builder()
    # Powers of two, by which weights are scaled without a rounding.
    scale = b.constant(2.0 ** RNG.integers(-1, 2, WIDE).astype(np.float16))
    x, rows = b.x(), (scale, b.rows(WIDE))
    if "rms" in options:
        attrs: dict[str, Any] = {"axes": (-1,), "epsilon": 1e-5}
        normed = b.operator("nn.rms_norm", (x, rows[0]), (M, WIDE), F16, **attrs)
    else:
        attrs = {"axes": (-1,), "epsilon": 1e-5}
        attrs |= {"center": "shift" in options, "scale": "scale" in options}
        normed = b.operator("nn.layer_norm", (x, *rows), (M, WIDE), F16, **attrs)
    seen = b.reshape(normed, (2, M // 2, WIDE)) if "view" in options else normed
    y = b.elementwise("nn.relu", _weighted(b, seen, NARROW, options))
    plus = _weighted(b, y, WIDE, options)
    if "wide" in options:
        plus, seen = b.astype(plus, F32), b.astype(seen, F32)
    total = b.elementwise("add", *((seen, plus) if "first" in options else (plus, seen)))
    if "twice" in options:  # by another matmul
        return b.graph((total, _weighted(b, normed, NARROW, options)))
    return b.graph(total)


@pytest.mark.parametrize("part", range(6))
def test_norms_of_any_form_are_within_the_products_around_them(part: int) -> None:
    rng = random.Random(part)
    for _ in range(6):
        options = {each for each in _OPTIONS if rng.random() < 0.5}
        made = norms_once(_around(options), Costs(norm=99.0), nothing)
        found = operators(made.graph)
        assert found.count(NORMED) == 2 + ("twice" in options), options
        assert not {"nn.layer_norm", "nn.rms_norm"} & set(found)
        assert NORMED not in operators(without_normed(made.graph))


def _of_pixels(b: Builder) -> int:
    """A group norm, of which each image is a row."""
    image = b.reshape(b.x(), (1, 2, M // 2, WIDE))
    attrs = {"groups": 2, "epsilon": 1e-5, "channel_axis": 3}
    normed = b.operator(IMAGE_NORM, (image,), (1, 2, M // 2, WIDE), F16, **attrs)
    return b.product(b.reshape(normed, (M, WIDE)), NARROW)


def _of_fp32(b: Builder) -> int:
    x = b.add(Expr(op=INPUT, shape=(M, NARROW), dtype=F16))
    wide = b.operator("matmul", (x, b.rows(NARROW, WIDE)), (M, WIDE), F32)
    rows = (b.constant(np.ones(WIDE, np.float32)), b.constant(np.ones(WIDE, np.float32)))
    attrs = {"axes": (-1,), "epsilon": 1e-5, "center": True, "scale": True}
    normed = b.operator("nn.layer_norm", (wide, *rows), (M, WIDE), F32, **attrs)
    return b.product(b.astype(normed, F16), NARROW)


def _of_odd_rows(b: Builder) -> int:
    b.wide = 12
    return b.product(b.norm(b.x()), NARROW)


def _to_odd_columns(b: Builder) -> int:
    return b.product(b.norm(b.x()), 12)


def _by_an_input(b: Builder) -> int:
    weight = b.add(Expr(op=INPUT, shape=(WIDE, NARROW), dtype=F16))
    return b.matmul(b.norm(b.x()), weight, F16)


def _as_the_weight(b: Builder) -> int:
    return b.matmul(b.rows(NARROW, M), b.norm(b.x()), F16)


def _split_again(b: Builder) -> int:
    return b.product(b.reshape(b.norm(b.x()), (2 * M, WIDE // 2)), NARROW)


def _added_to_more(b: Builder) -> int:
    normed = b.norm(b.x())
    whole = b.add(Expr(op=INPUT, shape=(3, M, WIDE), dtype=F16))
    more = b.elementwise("add", b.matmul(whole, b.rows(3, WIDE, WIDE), F16), normed)
    return b.elementwise("add", more, b.product(b.product(normed, NARROW), WIDE))


_MATMULS = "its readers are not all matmuls"
_KEPT = {
    "pixels": (_of_pixels, "it is a norm of images"),
    "odd rows": (_of_odd_rows, "the kernel before it does not write whole rows in multiples of 8"),
    "odd columns": (_to_odd_columns, _MATMULS),
    "an input": (_by_an_input, _MATMULS),
    "a weight": (_as_the_weight, _MATMULS),
    "split again": (_split_again, _MATMULS),
    "more rows": (_added_to_more, _MATMULS),
    "fp32": (_of_fp32, "its rows are FP32, which no matmul multiplies"),
}


@pytest.mark.parametrize("name", _KEPT)
def test_norms_of_other_rows_keep_their_kernels(name: str) -> None:
    build, reason = _KEPT[name]
    b = Builder()
    graph = b.graph(build(b))
    made = norms_once(graph, Costs(norm=99.0), nothing)
    assert made.graph is graph
    assert [each.reason.partition(": ")[2] for each in made.choices][-1].startswith(reason)


def test_a_softmax_is_no_norm_of_moments() -> None:
    b = Builder()
    made = b.operator("nn.softmax", (b.x(),), (M, WIDE), F16, axis=-1)
    graph = b.graph(b.product(made, NARROW))
    found = norms_once(graph, Costs(norm=99.0), nothing)
    assert found.graph is graph
    assert found.choices == ()


@pytest.mark.parametrize(("columns", "parts"), [(64, 1), (128, 2), (1024, 16), (1088, 1), (96, 1)])
def test_moments_are_of_at_most_sixteen_parts(columns: int, parts: int) -> None:
    b = Builder()
    b.wide = columns
    graph = b.graph(b.product(b.norm(b.x()), NARROW))
    # Moments of parts cost nothing.
    made = norms_once(graph, Costs(norm=99.0, part=0.0), nothing)
    sums = [expr for expr in made.graph.exprs if expr.op == "sum"]
    assert {expr.static_shape for expr in sums} == {(M, parts)}
