"""Chains in graphs, before any IR: what is joined, where it is cut, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boltgen.graph.attributes import NONE, Permutation, Reduce
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.passes.outline import Symbols, computes_all
from boltgen.passes.regions import products
from boltgen.passes.regions.chains import Found, join
from boltgen.passes.regions.products import alike, find_products
from boltgen.problems.workload import MAX_LAYERS, Cut, Layer, Workload
from tests.passes.carved import carve


def as_one(layers: tuple[Layer, ...]) -> Cut:
    return Cut(counts=(len(layers),), reasons=("joined",) * (len(layers) - 1))


class Net:
    """Dense layers with ReLU on (32, k) matrices, in FP16."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self.value = self.add("input", (32, 64))

    def add(self, op: str, shape: tuple[int, ...], *args: int) -> int:
        attrs = Permutation((1, 0)) if op == "permute_dims" else NONE
        made = Expr(op=op, args=args, shape=shape, dtype="float16", attrs=attrs)
        if op == "constant":
            array = np.random.default_rng(len(self.exprs)).uniform(-0.5, 0.5, shape)
            made = replace(made, array=array.astype(np.float16))
        self.exprs.append(made)
        return len(self.exprs) - 1

    def dense(self, n: int, *, transposed: bool = False) -> int:
        k = self.exprs[self.value].static_shape[1]
        weight = self.add("constant", (k, n))
        args = (weight, self.value) if transposed else (self.value, weight)
        product = self.add("matmul", (32, n), *args)
        self.value = self.add("nn.relu", (32, n), product)
        return self.value

    def joined(self, *also_outputs: int, cut=as_one) -> list[Found]:
        outputs = (self.value, *also_outputs)
        graph = Graph(tuple(self.exprs), frozenset(outputs), outputs)
        # This compares what each chain computes. A cutter of a test of its own checks its layers.
        carve(graph, Symbols(()), cut, others=cut is as_one)
        return join(graph, find_products(graph), cut)


def sizes(joined: list[Found]) -> list[int]:
    return [len(each.products) for each in joined]


def test_products_in_sequence_are_one():
    net = Net()
    for n in (48, 16, 24):
        net.dense(n)
    (joined,) = net.joined()
    assert len(joined.products) == 3
    assert joined.reason == "joined; joined"
    assert [product.anchor.problem.n for product in joined.products] == [48, 16, 24]


def test_an_output_between_stays_one():
    net = Net()
    between = net.dense(48)
    net.dense(16)
    first, second = net.joined(between)
    assert "the result between is an output of the model too" in first.reason
    assert second.reason == ""


def test_a_second_reader_breaks_the_chain_there_only():
    net = Net()
    net.dense(48)
    shared = net.dense(64)
    net.dense(64)
    net.value = net.add("add", (32, 64), net.value, shared)
    joined = net.joined()
    assert sizes(joined) == [2, 1]
    assert joined[0].reason.endswith("the result between is used 2 times")


def test_the_last_epilogue_goes_on_where_a_kernel_writes_more_than_one_result():
    net = Net()
    net.dense(16)
    second = net.dense(8)
    net.value = net.add("sigmoid", (32, 8), second)
    outputs = (net.value, second)
    graph = Graph(tuple(net.exprs), frozenset(outputs), outputs)

    def one_result(workload: Workload) -> str | None:
        return "several results" if workload.last.further else None

    for rejects, results in ((computes_all, 1), (one_result, 0)):
        _, (made,) = carve(graph, Symbols(()), as_one, rejects)
        assert len(made.region.workload.layers) == 2
        assert len(made.region.workload.last.further) == results


def test_a_result_that_is_the_other_operand_is_no_chain():
    net = Net()
    net.dense(32)  # (32, 32)
    other = net.add("input", (16, 32))
    net.value = net.add("matmul", (16, 32), other, net.value)
    assert sizes(net.joined()) == [1, 1]


def test_what_moves_the_result_is_named():
    net = Net()
    net.dense(48)
    net.value = net.add("permute_dims", (48, 32), net.value)
    weight = net.add("constant", (32, 16))
    net.value = net.add("matmul", (48, 16), net.value, weight)
    first, _ = net.joined()
    assert "permute_dims between moves the result to other threadblocks" in first.reason


def test_a_gate_that_is_made_of_the_result_is_named():
    net = Net()
    first = net.dense(16)
    rows = net.add("mean", (1, 16), first)
    gate = net.add("sigmoid", (1, 16), rows)
    net.value = net.add("multiply", (32, 16), first, gate)
    net.dense(8)
    net.exprs[rows] = replace(net.exprs[rows], attrs=Reduce((0,), True))
    joined = net.joined()
    assert sizes(joined) == [1, 1]
    assert joined[0].reason == (
        "not one kernel with the matmul that follows: multiply between reads what is made of the "
        "result, of other rows too"
    )


def test_a_plain_product_among_batched_ones_is_a_batch_that_shares_its_weight():
    net = Net()
    x = net.add("input", (3, 32, 64))
    first = net.add("matmul", (3, 32, 48), x, net.add("constant", (64, 48)))
    residual = net.add("input", (3, 32, 48))
    first = net.add("add", (3, 32, 48), first, residual)
    second = net.add("matmul", (3, 32, 16), first, net.add("constant", (3, 48, 16)))
    net.value = net.add("matmul", (3, 32, 24), second, net.add("constant", (16, 24)))

    def cut(layers: tuple[Layer, ...]) -> Cut:
        problems = [layer.problem for layer in layers]
        assert [(each.batch, each.m) for each in problems] == [(3, 32)] * 3
        assert [each.b_batched for each in problems] == [False, True, False]
        assert all(each.a_batched for each in problems)
        return as_one(layers)

    (joined,) = net.joined(cut=cut)
    assert len(joined.products) == 3
    found = alike(joined.products)
    assert [operand.batched for operand in found[0].tail.operands] == [True]
    assert alike(joined.products[:1]) == joined.products[:1]


def test_the_cutter_decides_and_its_reasons_go_to_the_layer_before_each_joint():
    net = Net()
    for n in (48, 16, 24):
        net.dense(n)

    def cut(layers: tuple[Layer, ...]) -> Cut:
        assert [layer.problem.k for layer in layers] == [64, 48, 16]
        return Cut(counts=(1, 2), reasons=("too wide", "pays"))

    joined = net.joined(cut=cut)
    assert sizes(joined) == [1, 2]
    assert [each.reason for each in joined] == ["too wide", "pays"]


def test_a_kernel_has_so_many_layers_at_most():
    net = Net()
    for _ in range(MAX_LAYERS + 1):
        net.dense(16)
    joined = net.joined()
    assert sizes(joined) == [MAX_LAYERS, 1]
    assert joined[0].reason.endswith(f"a kernel has {MAX_LAYERS} layers at most")


def test_products_are_found_once_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(16, 64), dtype="float16"))
    w = b.add(Expr(op=INPUT, shape=(64, 64), dtype="float16"))
    graph = b.graph(b.matmul(x, w, "float16"))
    found = find_products(graph)
    assert len(found) == 1
    monkeypatch.setattr(products, "match_anchor", None)  # it would fail if it were asked again
    assert find_products(graph, DType.F32) is find_products(graph, shares=frozenset()) is found
    with pytest.raises(TypeError):
        find_products(graph, DType.F16)
