"""Which products with a softmax between them become one region, and why others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from boltgen.arch import arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.registry import candidates
from boltgen.graph.graph import INPUT, REGION, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import SOFTMAX, LoadKind
from boltgen.passes.outline import Symbols, find_regions
from boltgen.passes.regions.chains import Found
from boltgen.problems.region import Shared, Sharing
from boltgen.problems.workload import Workload
from tests.passes.carved import carve

BATCH, HEADS, ROWS, KEYS, DEPTH, COLUMNS = 2, 3, 40, 56, 16, 24


class Builder(GraphBuilder):
    """Grows attention in the neutral graph."""

    def input(self, *shape: int, dtype: str = "float16") -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def softmax(self, x: int, axis: int = -1) -> int:
        wide = self.astype(x, "float32")
        made = self.operator("nn.softmax", (wide,), self.shape(wide), "float32", axis=axis)
        return self.astype(made, "float16")

    def scores(self, *, heads: int = HEADS) -> int:
        query = self.input(BATCH, heads, ROWS, DEPTH)
        key = self.permute_dims(self.input(BATCH, heads, KEYS, DEPTH), (0, 1, 3, 2))
        scale = self.add(Expr(op="constant", shape=(), dtype="float16", scalar=0.25))
        return self.elementwise("multiply", self.matmul(query, key, "float16"), scale)

    def values(self, *, heads: int = HEADS) -> int:
        return self.input(BATCH, heads, KEYS, COLUMNS)


def _graph(build: Callable[[Builder], Any]) -> Graph:
    builder = Builder()
    return builder.graph(build(builder))


def _plain(b: Builder) -> int:
    return b.matmul(b.softmax(b.scores()), b.values(), "float16")


def _on_sm80(workload: Workload) -> str | None:
    try:
        candidates(workload, arch_named("sm_80"))
    except NoLegalConfigError as error:
        return str(error)
    return None


def _only(graph: Graph) -> Found:
    (found,) = find_regions(graph, rejects=_on_sm80)
    return found


def test_scores_softmax_and_values_are_one_region() -> None:
    graph = _graph(_plain)
    workload = _only(graph).workload(graph)
    first, last = workload.layers
    assert (first.problem.batch, first.problem.out_dtype) == (BATCH * HEADS, DType.F32)
    assert first.problem.b_layout is Layout.COLUMN
    assert (last.prologue, last.problem.gemm.n) == (SOFTMAX, COLUMNS)
    carved, (region,) = carve(graph, Symbols(()), rejects=_on_sm80)
    assert [expr.op for expr in carved.exprs if expr.op != INPUT] == [REGION]
    assert region.region.label == "matmul + multiply + astype + softmax + astype + matmul"
    assert region.region.parameter_count == 3


def test_of_a_row_of_softmaxes_the_first_is_taken() -> None:
    def build(b: Builder) -> int:
        weights = b.matmul(b.softmax(b.scores()), b.values(), "float16")
        return b.matmul(b.softmax(weights), b.input(BATCH, HEADS, COLUMNS, 8), "float16")

    graph = _graph(build)
    found = find_regions(graph, rejects=_on_sm80)
    assert sorted(len(each.products) for each in found) == [1, 2]
    carved, regions = carve(graph, Symbols(()), rejects=_on_sm80)
    assert [each.region.label for each in regions][1:] == ["softmax + astype", "matmul"]
    assert [len(each.region.workload.layers) for each in regions] == [2, 1, 1]
    assert not any(expr.op == "nn.softmax" for expr in carved.exprs)


def test_heads_may_join_the_batch_between() -> None:
    def build(b: Builder) -> int:
        weights = b.reshape(b.softmax(b.scores()), (BATCH * HEADS, ROWS, KEYS))
        return b.matmul(weights, b.input(BATCH * HEADS, KEYS, COLUMNS), "float16")

    graph = _graph(build)
    assert len(_only(graph).products) == 2


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 1, ROWS, KEYS), LoadKind.TENSOR),
        ((BATCH, HEADS, ROWS, KEYS), LoadKind.TENSOR),
        ((1, 1, 1, KEYS), LoadKind.ROW),
    ],
)
def test_masks_are_loads(shape: tuple[int, ...], kind: LoadKind) -> None:
    def build(b: Builder) -> int:
        masked = b.elementwise("add", b.scores(), b.input(*shape))
        return b.matmul(b.softmax(masked), b.values(), "float16")

    graph = _graph(build)
    (load,) = _only(graph).workload(graph).first.epilogue.loads
    assert load.kind is kind


def _mask_of_each_image(b: Builder) -> int:
    masked = b.elementwise("add", b.scores(), b.input(BATCH, 1, 1, KEYS))
    return b.matmul(b.softmax(masked), b.values(), "float16")


def _of_columns(b: Builder) -> int:
    return b.matmul(b.softmax(b.scores(), axis=2), b.values(), "float16")


def _weights_are_read_twice(b: Builder) -> tuple[int, int]:
    weights = b.softmax(b.scores())
    return b.matmul(weights, b.values(), "float16"), weights


def _twice_normalised(b: Builder) -> int:
    return b.matmul(b.softmax(b.softmax(b.scores())), b.values(), "float16")


def _rows_are_split(b: Builder) -> int:
    weights = b.reshape(b.softmax(b.scores()), (BATCH, HEADS, 2 * ROWS, KEYS // 2))
    return b.matmul(weights, b.input(BATCH, HEADS, KEYS // 2, COLUMNS), "float16")


@pytest.mark.parametrize(
    "build",
    [
        _of_columns,
        _weights_are_read_twice,
        _twice_normalised,
        _rows_are_split,
    ],
)
def test_what_a_kernel_does_not_compute_stays_two_products(
    build: Callable[[Builder], Any],
) -> None:
    assert [len(each.products) for each in find_regions(_graph(build), rejects=_on_sm80)] == [1, 1]


def test_a_mask_may_be_shared_by_the_heads_of_each_image() -> None:
    _, (carved,) = carve(_graph(_mask_of_each_image), Symbols(()), rejects=_on_sm80)
    (mask,) = carved.region.layers[0].operands
    assert mask.shared == Shared(by=Sharing.HEADS, heads=HEADS)
    assert carved.region.heads == HEADS


def test_masks_that_are_shared_by_other_heads_are_no_attention() -> None:
    def build(b: Builder) -> int:
        first = b.elementwise("add", b.scores(), b.input(BATCH, 1, ROWS, KEYS))
        other = b.reshape(first, (HEADS, BATCH, ROWS, KEYS))
        third = b.elementwise("add", other, b.input(HEADS, 1, ROWS, KEYS))
        back = b.reshape(third, (BATCH, HEADS, ROWS, KEYS))
        return b.matmul(b.softmax(back), b.values(), "float16")

    found = find_regions(_graph(build), rejects=_on_sm80)
    assert [len(each.products) for each in found] == [1, 1]
    assert f"{BATCH} and by {HEADS} heads" in " ".join(each.reason for each in found)


def test_what_is_no_attention_reads_no_mask_that_heads_share() -> None:
    def build(b: Builder) -> int:
        return b.elementwise("add", b.scores(), b.input(BATCH, 1, ROWS, KEYS))

    (found,) = find_regions(_graph(build), rejects=_on_sm80)
    assert found.products[0].tail.operands == ()


def test_a_region_says_why_it_is_not_attention() -> None:
    def rejects(workload: Workload) -> str | None:
        return "there is no time" if workload.is_fused else None

    _, (scores, _, values) = carve(_graph(_plain), Symbols(()), rejects=rejects)
    assert "softmax" in scores.region.note
    assert "there is no time" in scores.region.note
    assert values.region.note == ""
