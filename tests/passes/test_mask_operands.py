"""Which operands of attention its kernel makes itself, of smaller ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, REGION, Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.outline import CarvedRegion, Symbols
from boltgen.problems.region import Shared, Sharing
from tests.passes.carved import carve
from tests.passes.test_attention import Builder

HEADS, ROWS, DEPTH = 3, 40, 16
SEQUENCES = [2, symbolic(Symbol("batch", 1, 4))]
Mask = Callable[[Builder, int], int]


def _carved(mask: Mask, batch: int = 2) -> tuple[Graph, CarvedRegion]:
    b = Builder()
    q, k, v = (b.input(batch, HEADS, ROWS, DEPTH) for _ in range(3))
    scores = b.matmul(q, b.permute_dims(k, (0, 1, 3, 2)), "float16")
    masked = b.elementwise("add", scores, mask(b, batch))
    graph, (carved,) = carve(b.graph(b.matmul(b.softmax(masked), v, "float16")), Symbols(()))
    return graph, carved


def _operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op not in {INPUT, "constant"}]


def _clipped(b: Builder, x: int) -> int:
    attrs = {"low": -65504.0, "high": 65504.0}
    return b.operator("clip", (x,), b.shape(x), b.dtype(x), **attrs)


def _sum(b: Builder, batch: int, dtype: str = "float32") -> int:
    """(B, H, M, N) of a bias that sequences share, and of what each hides of its own."""
    bias = b.input(1, HEADS, ROWS, ROWS, dtype=dtype)
    hidden = b.input(batch, 1, 1, ROWS, dtype=dtype)
    return b.astype(_clipped(b, b.elementwise("add", bias, hidden)), "float16")


@pytest.mark.parametrize("batch", SEQUENCES, ids=["known", "open"])
def test_the_kernel_adds_what_sequences_and_heads_share(batch: int) -> None:
    graph, carved = _carved(_sum, batch)
    assert _operators(graph) == [REGION]
    scores, _ = carved.region.workload.layers
    assert scores.epilogue.describe() == (
        "add(acc, float16(clip(add(tensor0, row0), -65504, 65504)))"
    )
    assert [operand.shared for operand in carved.region.layers[0].operands] == [
        Shared(by=Sharing.SEQUENCES, heads=HEADS),
        Shared(by=Sharing.HEADS, heads=HEADS),
    ]
    assert scores.epilogue.loads == (
        Load(LoadKind.TENSOR, DType.F32),
        Load(LoadKind.ROW, DType.F32),
    )
    # Relay is told that the region computes them.
    assert [expr.op for expr in carved.body.exprs].count("add") == 2


def _of_two_full(b: Builder, batch: int) -> int:
    shape = batch, HEADS, ROWS, ROWS
    return b.elementwise("add", b.input(*shape), b.input(*shape))


def _of_one_that_is_made(b: Builder, batch: int) -> int:
    made = b.elementwise("exp", b.input(batch, 1, 1, ROWS))
    return _clipped(b, made)


def test_a_number_is_no_tensor_to_load() -> None:
    graph, carved = _carved(
        lambda b, n: b.elementwise("multiply", b.input(n, 1, 1, ROWS), b.constant(np.float16(2)))
    )
    assert _operators(graph) == [REGION]
    (operand,) = carved.region.layers[0].operands
    assert operand.shared == Shared(by=Sharing.HEADS, heads=HEADS)
    assert carved.region.workload.layers[0].epilogue.describe() == "add(acc, multiply(row0, 2))"


@pytest.mark.parametrize("mask", [_of_two_full, _of_one_that_is_made])
def test_what_saves_nothing_stays(mask: Mask) -> None:
    graph, carved = _carved(mask)
    assert len(_operators(graph)) > 1
    assert len(carved.region.layers[0].operands) == 1


def test_an_input_is_cast_by_the_kernel() -> None:
    graph, _ = _carved(lambda b, n: _clipped(b, b.astype(b.input(n, 1, 1, ROWS), "float16")))
    assert _operators(graph) == [REGION]


def _many(b: Builder, batch: int) -> int:
    """More full tensors than a kernel loads."""
    x = b.input(1, HEADS, ROWS, ROWS)
    for _ in range(2):
        x = b.elementwise("add", x, b.input(batch, 1, ROWS, ROWS))
    return x


def test_a_mask_that_is_broadcast_is_loaded_as_it_was() -> None:
    def mask(b: Builder, batch: int) -> int:
        hidden, shape = b.input(batch, 1, 1, ROWS), (batch, 1, ROWS, ROWS)
        return b.operator("broadcast_to", (hidden,), shape, "float16")

    graph, carved = _carved(mask)
    assert _operators(graph) == [REGION]
    scores, _ = carved.region.workload.layers
    assert scores.epilogue.describe() == "add(acc, row0 that hides keys)"


def test_too_many_loads_are_one_sum() -> None:
    graph, carved = _carved(_many)
    assert _operators(graph) == ["add", "add", REGION]
    assert len(carved.region.layers[0].operands) == 1


def test_what_others_read_too_is_made_where_that_is_less_to_read() -> None:
    def build(batch: int, dtype: str, made: Callable[..., int] = _sum) -> list[str]:
        b = Builder()
        mask = made(b, batch, dtype)
        results = []
        for _ in range(2):
            q, k, v = (b.input(batch, HEADS, ROWS, DEPTH) for _ in range(3))
            scores = b.matmul(q, b.permute_dims(k, (0, 1, 3, 2)), "float16")
            masked = b.elementwise("add", scores, mask)
            results.append(b.matmul(b.softmax(masked), v, "float16"))
        graph, _ = carve(b.graph(tuple(results)), Symbols(()))
        return _operators(graph)

    assert build(8, "float16") == [REGION, REGION]
    # As many bytes are not less.
    whole = build(1, "float16", lambda b, n, _: _clipped(b, b.input(n, HEADS, ROWS, ROWS)))
    assert whole == ["clip", REGION, REGION]
    # Half of a sum of one sequence is not less than the sum in FP16.
    assert build(1, "float32") == ["add", "clip", "astype", REGION, REGION]
