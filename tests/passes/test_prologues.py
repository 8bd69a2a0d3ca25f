"""Elementwise operators before a product in graphs: which ones its kernel computes, and when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Expr, GraphBuilder
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.products import Product, find_products
from boltgen.passes.regions.prologues import with_prologue
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.carved import carve

B, S, K, N = 3, 5, 16, 24


@dataclass(frozen=True, slots=True)
class Costs:
    """A kernel with a prologue takes so much longer; a pass over memory takes 10 us."""

    longer: float = 1.0
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = (
            1.0 if each.single.prologue.is_identity else 1.0 + self.longer for each in workloads
        )
        return KernelTimes(times_us=tuple(times), origin=self.move_origin)

    def move_us(self, bytes_moved: int, launches: int) -> float:
        assert (bytes_moved, launches) == (2 * B * S * K * 2, 1)
        return 10.0


class Net(GraphBuilder):
    """A tensor, and a product of what is made of it."""

    def input(self, *shape: int, dtype: str = "float16") -> int:
        return self.add(Expr(op=INPUT, shape=shape or (B, S, K), dtype=dtype))

    def known(self, value: float) -> int:
        return self.add(Expr(op=CONSTANT, shape=(), dtype="float16", scalar=value))

    def done(self, op: str, *args: int, shape: tuple[int, ...] = (B, S, K)) -> int:
        return self.operator(op, args, shape, "float16")

    def product(self, a: int) -> int:
        flat = self.reshape(a, (B * S, K))
        return self.operator("matmul", (flat, self.input(K, N)), (B * S, N), "float16")


def _found(
    build: Callable[[Net], int | tuple[int, ...]],
    costs: Costs | None = None,
    claimed: Collection[int] = (),
    reason: str | None = None,
) -> tuple[Net, Product]:
    net = Net()
    results = build(net)
    graph = net.graph(results)
    (product,) = find_products(graph)
    return net, with_prologue(graph, product, set(claimed), lambda _: reason, costs or Costs())


def _gated(net: Net) -> int:
    return net.product(net.done("multiply", net.input(), net.input(B, 1, K)))


def test_a_gate_of_each_sequence() -> None:
    _, product = _found(_gated)
    assert product.summed is not None
    assert product.summed.prologue.describe() == "multiply(acc, slice_row0)"
    assert [load.kind for load in product.summed.prologue.loads] == [LoadKind.SLICE_ROW]
    assert product.anchor.a == 0
    assert product.tail.slice_rows == S
    assert len(product.summed.members) == 2  # with the reshape


def test_a_batch_norm_and_an_activation() -> None:
    def build(net: Net) -> int:
        scaled = net.done("multiply", net.input(), net.input(K))
        return net.product(net.done("nn.relu", net.done("add", scaled, net.input(K))))

    _, product = _found(build)
    assert product.summed is not None
    assert product.summed.prologue.describe() == "relu(add(multiply(acc, row0), row1))"


def test_a_silu_reads_its_tensor_twice() -> None:
    def build(net: Net) -> int:
        x = net.input()
        return net.product(net.done("multiply", x, net.done("sigmoid", x)))

    _, product = _found(build)
    assert product.summed is not None
    assert product.summed.prologue.describe() == "silu(acc)"


def test_a_second_tensor_is_an_operand() -> None:
    _, product = _found(lambda net: net.product(net.done("multiply", net.input(), net.input())))
    assert product.summed is not None
    assert [load.kind for load in product.summed.prologue.loads] == [LoadKind.TENSOR]


def _others_read(net: Net) -> tuple[int, ...]:
    a = net.done("nn.relu", net.input())
    return net.product(a), net.done("exp", a)


def _tvm_makes_both(net: Net) -> int:
    """The transpose and the activation are one kernel of TVM's."""
    x = net.input(B, K, S)
    turned = net.operator("permute_dims", (x,), (B, S, K), "float16", axes=(0, 2, 1))
    return net.product(net.done("nn.relu", turned))


def _broadcast(net: Net) -> int:
    return net.product(net.done("multiply", net.input(1, S, K), net.input(B, 1, K)))


def _of_other_type(net: Net) -> int:
    wide = net.input(dtype="float32")
    return net.product(net.operator("astype", (wide,), (B, S, K), "float16", from_dtype="float32"))


def _of_itself(net: Net) -> int:
    a = net.done("nn.relu", net.input(K, K), shape=(K, K))
    return net.operator("matmul", (a, a), (K, K), "float16")


def _of_batches(net: Net) -> int:
    a = net.done("nn.relu", net.input())
    return net.operator("matmul", (a, net.input(B, K, N)), (B, S, N), "float16")


def _in_the_sum_too(net: Net) -> int:
    a = net.done("nn.relu", net.input(B * S, K), shape=(B * S, K))
    made = net.operator("matmul", (a, net.input(K, K)), (B * S, K), "float16")
    return net.done("add", made, a, shape=(B * S, K))


@pytest.mark.parametrize(
    "build",
    [
        _of_itself,
        _of_batches,
        _in_the_sum_too,
        _others_read,
        _tvm_makes_both,
        _broadcast,
        _of_other_type,
        lambda net: net.product(net.input()),
    ],
    ids=["itself", "batches", "sum", "others", "made", "broadcast", "type", "nothing"],
)
def test_what_saves_nothing_or_cannot_be_stays(build: Callable[[Net], int]) -> None:
    _, product = _found(build)
    assert product.summed is None


def test_times_and_families_decide() -> None:
    assert _found(_gated, Costs(longer=9.0))[1].summed is not None
    assert _found(_gated, Costs(longer=10.0))[1].summed is None
    assert _found(_gated, reason="no kernel")[1].summed is None


def test_what_another_region_computes_is_its_own() -> None:
    _, product = _found(_gated)
    assert product.summed is not None
    gate = product.summed.members[0]
    assert _found(_gated, claimed=[gate])[1].summed is None


@pytest.mark.parametrize("is_before", [True, False])
def test_a_gate_that_another_region_writes_is_read_as_it_is(is_before: bool) -> None:
    net = Net()
    x, made = (
        net.input(),
        net.operator("matmul", (net.input(B, K), net.input(K, K)), (B, K), "float16"),
    )
    gate = net.reshape(net.done("divide", made, net.known(6.0), shape=(B, K)), (B, 1, K))
    if is_before:
        result = net.product(net.done("multiply", x, gate))
    else:
        flat = net.operator(
            "matmul", (net.reshape(x, (B * S, K)), net.input(K, K)), (B * S, K), "float16"
        )
        result = net.done("multiply", net.reshape(flat, (B, S, K)), gate)
    _, (first, second) = carve(net.graph(result), Symbols(()), reductions=Costs())
    assert [node.op for node in first.body.exprs if node.op == "divide"] == ["divide"]
    assert not any(node.op == "divide" for node in second.body.exprs)
