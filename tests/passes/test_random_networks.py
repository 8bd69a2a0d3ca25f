"""Any network through all passes: what its regions and TVM compute is what its author wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.graph import REGION, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.partition import partition_graphs
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.carved import check_regions
from tests.passes.differential import Sizes, drawn, operators, with_unknown_sizes
from tests.passes.networks import F32, IMAGE, ROWS, STEPS, N, Net, Step, network


@dataclass(frozen=True)
class Costs:
    """Kernels take 1 us, and 1 us more for each operand that no vectors hold; moves take 0.25."""

    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        def time_us(one: Workload) -> float:
            problem = one.first.problem
            return 1.0 + sum(each % 8 != 0 for each in (problem.a_shape[-1], problem.d_shape[-1]))

        return KernelTimes(times_us=tuple(map(time_us, workloads)), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        del bytes_moved
        return 0.25 * launches


def _partitioned(graph: Graph, sizes: Sizes | None = None, **options: Any) -> Partitioned:
    passes = Passes(padding=Costs(), joining=Costs(), **options)
    made = partition_graphs({"main": graph}, (), passes, lambda *_: None, packs_weights=True)
    check_regions(made.graphs["main"], tuple(made.carved.values()), sizes or {})
    return made


def _compared(
    graph: Graph, made: Partitioned, precision: DType = DType.F16, sizes: Sizes | None = None
) -> None:
    bodies = {symbol: each.body for symbol, each in made.carved.items()}
    given = drawn(graph, sizes)
    wanted = run(graph, given, sizes=sizes)
    found = run(made.graphs["main"], given, sizes=sizes, regions=bodies)
    largest = max(1.0, *(float(np.abs(each).max(initial=0.0)) for each in wanted))
    for left, right in zip(found, wanted, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=0, atol=64 * precision.ulp * largest)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.sampled_from([IMAGE, ROWS]), st.sampled_from([DType.F16, DType.BF16]))
def test_any_network_computes_the_same(
    steps: list[Step], shape: tuple[int, ...], precision: DType
) -> None:
    graph = network(steps, shape)
    _compared(graph, _partitioned(graph, precision=precision), precision)


def _transformer(*, is_causal: bool, is_rms: bool) -> Graph:
    """A layer: a norm, attention of two heads, a norm and a gated MLP, with residual sums."""
    b, rows, columns, heads = Net(), 8, 16, 2
    depth = columns // heads
    x = b.input(N, rows, columns)

    def normed(x: int) -> int:
        if not is_rms:
            return b.layer_norm(x)
        mean = b.reduced(b.elementwise("multiply", x, x), "mean", 2, keepdims=True)
        root = b.elementwise("rsqrt", b.elementwise("add", mean, b.number(2.0**-10)))
        return b.elementwise("multiply", b.elementwise("multiply", x, root), b.weight(columns))

    def projected(x: int, order: Sequence[int]) -> int:
        apart = b.reshape(b.product(x, columns), (N, rows, heads, depth))
        return b.permute_dims(apart, order)

    y = normed(x)
    q, v = (projected(y, (0, 2, 1, 3)) for _ in range(2))
    k = projected(y, (0, 2, 3, 1))
    scores = b.elementwise("multiply", b.matmul(q, k, F32), b.number(depth**-0.5))
    if is_causal:
        mask = np.where(np.tri(rows), 0.0, -np.inf).astype(np.float32)
        scores = b.elementwise("add", scores, b.constant(mask))
    seen = b.matmul(b.softmax(scores, -1), v, F32)
    seen = b.reshape(b.permute_dims(seen, (0, 2, 1, 3)), (N, rows, columns))
    x = b.elementwise("add", x, b.product(seen, columns))
    y = normed(x)
    gate = b.elementwise("nn.silu", b.product(y, 2 * columns))
    gated = b.elementwise("multiply", gate, b.product(y, 2 * columns))
    return b.graph(b.elementwise("add", x, b.product(gated, columns)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("is_rms", [False, True])
def test_a_transformer_layer(is_causal: bool, is_rms: bool) -> None:
    graph = _transformer(is_causal=is_causal, is_rms=is_rms)
    made = _partitioned(graph)
    _compared(graph, made)
    found = operators(made.graphs["main"])
    assert not {"matmul", "nn.softmax", "nn.layer_norm"} & set(found)
    assert found.count(REGION) <= 7


def test_a_transformer_layer_with_a_value_of_unknown_sizes() -> None:
    for graph, sizes in with_unknown_sizes(_transformer(is_causal=True, is_rms=False)):
        _compared(graph, _partitioned(graph, sizes), sizes=sizes)


def test_a_graph_without_operators() -> None:
    b: GraphBuilder = Net()
    graph = b.graph((b.constant(np.array(1.0, np.float32)),))
    made = _partitioned(graph)
    assert made.regions == ()
    assert made.placements == ()


def test_placements_tell_who_computes_what() -> None:
    b = Net()
    x = b.input(N, 8, 16)
    attrs = {"subscripts": "bik,bjk->ij"}
    odd = b.operator("einsum", (x, x), (8, 8), F32, **attrs)
    made = _partitioned(b.graph(b.elementwise("floor", b.product(odd, 16))))
    einsum, region, floor = (
        next(each for each in made.placements if name in each.operator)
        for name in ("einsum", "matmul", "floor")
    )
    assert (einsum.region, einsum.flops) == (None, 2 * 8 * 8 * N * 16)
    assert "sum along one operand's axis" in einsum.reason
    assert (region.region, region.flops) == (made.regions[0].symbol, 2 * 8 * 16 * 8)
    assert floor.reason == (
        "the kernel of the matmul before it cannot compute it: no epilogue has this operator"
    )
