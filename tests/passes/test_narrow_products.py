"""Which products of dequantised floats of 8 bits become products of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from boltgen.graph.graph import Array, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.outline import Symbols, carve, computes_all
from boltgen.passes.precision.walk import normalise
from boltgen.passes.quantisation.narrow_products import with_products_of_float8
from boltgen.passes.quantisation.sink_dequantise import with_late_dequantisations
from boltgen.problems.workload import Workload
from tests.passes.test_quantisation import Net

M, K, N = 64, 48, 32
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
RNG = np.random.default_rng(0)


class NarrowNet(Net):
    """A builder of networks of 8-bit floats, with the zero points of TVM's operators."""

    def scaled(self, x: int, scale: float | Array, axis: int = 0) -> int:
        numbers = self.numbers(scale, 0, "float16")
        return self.operator("dequantize", (x, *numbers), self.shape(x), "float32", axis=axis)

    def narrowed(self, x: int, scale: float, dtype: str = E4M3) -> int:
        numbers = self.numbers(scale, 0, "float16")
        return self.operator("quantize", (x, *numbers), self.shape(x), dtype, axis=0)

    def narrow_weight(self, dtype: Any = ml_dtypes.float8_e4m3fn) -> int:
        return self.constant((RNG.standard_normal((K, N)) * 20).astype(dtype))


def passed(
    graph: Graph, rejects: Callable[[Workload], str | None] = computes_all
) -> tuple[Graph, list[str]]:
    """The graph after the passes, with equal values, and the reasons of wider products."""
    reasons: list[str] = []
    made = with_products_of_float8(
        with_late_dequantisations(graph), rejects, lambda expr, reason: reasons.append(reason)
    )
    x = RNG.standard_normal((M, K)).astype(np.float32)
    (before,), (after,) = run(graph, [x]), run(made, [x])
    # Scales are powers of two, so both sums are exact in FP64 and rounded alike.
    assert np.allclose(before, after, rtol=1e-6, atol=1e-6)
    return made, reasons


@pytest.mark.parametrize("columns", [False, True])
def test_a_product_becomes_one_of_8_bit_floats_and_its_sums_are_scaled(columns: bool) -> None:
    net = NarrowNet()
    x = net.scaled(net.narrowed(net.input(M, K), 2.0**-3), 2.0**-3)
    scale: Any = 2.0 ** -RNG.integers(5, 8, N) if columns else 2.0**-7
    weight = net.scaled(net.narrow_weight(), scale, axis=1)
    made = net.elementwise("nn.relu", net.matmul(x, weight, "float32"))
    graph, reasons = passed(net.graph(made))
    assert not reasons
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    layer = region.region.workload.single
    types = layer.problem.in_dtype, layer.problem.acc_dtype, layer.problem.out_dtype
    assert types == (DType.E4M3, DType.F32, DType.F32)
    assert [load.dtype for load in layer.loads] == [DType.F32] * columns


def test_a_result_of_8_bits_is_clipped_in_the_kernel() -> None:
    net = NarrowNet()
    x = net.scaled(net.narrowed(net.input(M, K), 2.0**-3), 2.0**-3)
    made = net.matmul(x, net.scaled(net.narrow_weight(), 2.0**-7), "float32")
    graph, reasons = passed(net.graph(net.narrowed(made, 2.0**-2)))
    assert not reasons
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    layer = region.region.workload.single
    assert layer.problem.out_dtype is DType.E4M3
    assert "clip" in layer.epilogue.formula


def _other_type(net: NarrowNet, x: int) -> int:
    return net.matmul(x, net.scaled(net.narrow_weight(ml_dtypes.float8_e5m2), 1.0), "float32")


def _of_rows(net: NarrowNet, x: int) -> int:
    weight = net.scaled(net.narrow_weight(), 2.0 ** -RNG.integers(5, 8, K), axis=0)
    return net.matmul(x, weight, "float32")


def _wide(net: NarrowNet, x: int) -> int:
    weight = net.constant(RNG.standard_normal((K, N)).astype(np.float32))
    return net.matmul(x, weight, "float32")


def _tiny(net: NarrowNet, x: int) -> int:
    return net.matmul(x, net.scaled(net.narrow_weight(), 2.0**-140), "float32")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (_other_type, f"it multiplies {E4M3} by {E5M2}; kernels take one type"),
        (_of_rows, "its weight has scales for rows of K"),
        (_wide, "its right operand is no dequantised constant"),
        (_tiny, "FP32 does not hold the scale"),
    ],
)
def test_what_stays_a_product_of_wider_floats_has_a_reason(
    made: Callable[[NarrowNet, int], int], reason: str
) -> None:
    net = NarrowNet()
    x = net.scaled(net.narrowed(net.input(M, K), 2.0**-3), 2.0**-3)
    graph, (found,) = passed(net.graph(made(net, x)))
    assert E4M3 not in {graph[arg].dtype for arg in graph[graph.operators["matmul"][0]].args}
    assert reason in found


def test_a_convolution_of_8_bit_floats_is_refused_by_name() -> None:
    net = NarrowNet()
    x = net.scaled(net.narrowed(net.input(1, 16, 8, 8), 2.0**-3), 2.0**-3)
    numbers = (RNG.standard_normal((8, 16, 3, 3)) * 20).astype(ml_dtypes.float8_e4m3fn)
    made = net.conv(x, net.scaled(net.constant(numbers), 2.0**-7))
    reasons: list[str] = []
    with_products_of_float8(net.graph(made), computes_all, lambda _, found: reasons.append(found))
    assert "no kernel convolves images of 8-bit floats" in reasons[0]


def test_a_rejected_product_names_the_reason_of_the_kernels() -> None:
    net = NarrowNet()
    x = net.scaled(net.narrowed(net.input(M, K), 2.0**-3), 2.0**-3)
    made = net.matmul(x, net.scaled(net.narrow_weight(), 2.0**-7), "float32")
    _, (found,) = passed(net.graph(made), lambda _: "no instruction")
    assert found.endswith("it multiplies wider floats: no instruction")
