"""Relay's operators under their neutral names."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with
from boltgen.graph.attributes import Convolution
from boltgen.graph.graph import Expr

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.frontend.relay.translate import translate  # isort: skip
from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(5)
IMAGE = relay.var("x", shape=(1, 6, 6, 4), dtype="float32")
MATRIX = relay.var("x", shape=(6, 4), dtype="float32")
VALUE = relay.var("value", shape=(), dtype="float32")


def array(*shape: int) -> relay.Constant:
    return relay.const(RNG.standard_normal(shape).astype(np.float32))


def module(body: relay.Expr) -> tvm.IRModule:
    free = relay.analysis.free_vars(body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(free, body)))


def translated(body: relay.Expr) -> Expr:
    """The expression of an operator."""
    graph = translate(module(body)["main"])
    assert isinstance(graph.results, int)
    return graph[graph.results]


def convolution(weight: relay.Expr, layout: str, **options: int) -> relay.Expr:
    return relay.nn.conv2d(
        IMAGE, weight, kernel_size=(3, 3), data_layout="NHWC", kernel_layout=layout, **options
    )


@pytest.mark.parametrize(
    ("body", "name", "attrs"),
    [
        (relay.transpose(MATRIX), "permute_dims", {"axes": (1, 0)}),
        (relay.layout_transform(IMAGE, "NHWC", "NCHW"), "permute_dims", {"axes": (0, 3, 1, 2)}),
        (relay.layout_transform(IMAGE, "NHWC", "NHWC2c"), "relay.layout_transform", {}),
        (relay.sum(IMAGE, 1, exclude=True), "sum", {"axis": (0, 2, 3), "keepdims": False}),
        (relay.variance(MATRIX, -1), "variance", {"axis": (1,), "keepdims": False}),
        (relay.variance(MATRIX, -1, unbiased=True), "relay.variance", {}),
        (relay.take(MATRIX, relay.const([1, 0]), 0), "take", {"axis": 0, "mode": "clip"}),
        (relay.take(MATRIX, relay.const([1, -1]), 0), "relay.take", {}),
        (relay.nn.bias_add(MATRIX, array(4), 1), "add", {}),
        (relay.nn.bias_add(MATRIX, array(6), 0), "nn.bias_add", {"axis": 0}),
        (
            relay.nn.pad(MATRIX, ((0, 1), (2, 3)), 1.5),
            "nn.pad",
            {"widths": ((0, 1), (2, 3)), "value": 1.5, "mode": "constant"},
        ),
        (relay.nn.pad(MATRIX, ((0, 1), (2, 3)), VALUE), "relay.nn.pad", {}),
        (relay.reverse(MATRIX, 1), "flip", {"axis": 1}),
        (relay.repeat(MATRIX, 2, 1), "repeat", {"axis": 1, "repeats": 2}),
        (relay.prod(MATRIX, -1, keepdims=True), "prod", {"axis": (1,), "keepdims": True}),
        (relay.prod(IMAGE, 1, exclude=True), "prod", {"axis": (0, 2, 3), "keepdims": False}),
        (relay.einsum((MATRIX, array(4, 5)), "ij,jk->ik"), "einsum", {"subscripts": "ij,jk->ik"}),
        (relay.clip(MATRIX, 0.0, 6.0), "clip", {"low": 0.0, "high": 6.0}),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_names_and_attributes(body: relay.Expr, name: str, attrs: dict[str, object]) -> None:
    expr = translated(body)
    assert (expr.op, expr.attrs.named()) == (name, attrs)


def test_a_weight_in_hwio_is_turned_at_once() -> None:
    weight = array(3, 3, 4, 8)
    graph = translate(module(convolution(weight, "HWIO", channels=8))["main"])
    assert isinstance(graph.results, int)
    made = graph[graph.results]
    assert made.attrs.of(Convolution).kernel_layout == "OHWI"
    turned = graph[made.args[1]].array
    assert turned is not None
    np.testing.assert_array_equal(turned, weight.data.numpy().transpose(3, 0, 1, 2))


def test_several_filters_for_each_channel_follow_one_another() -> None:
    weight = array(3, 3, 4, 2)
    body = convolution(weight, "HWOI", channels=8, groups=4)
    graph = translate(module(body)["main"])
    assert isinstance(graph.results, int)
    made = graph[graph.results]
    assert made.attrs.of(Convolution).kernel_layout == "HWOI"
    joint = graph[made.args[1]].array
    assert joint is not None
    np.testing.assert_array_equal(joint, weight.data.numpy().reshape(3, 3, 8, 1))
    (region,) = steps.annotate(module(body)).regions
    assert region.workload.first.problem.multiplier == 2


@pytest.mark.parametrize(
    "body",
    [
        relay.variance(MATRIX, -1, unbiased=True),
        relay.take(MATRIX, relay.const([1, -1]), 0),
        relay.nn.pad(MATRIX, ((0, 1), (2, 3)), 1.5),
        relay.nn.bias_add(relay.nn.relu(MATRIX), array(6), 0),
        relay.concatenate([MATRIX, relay.nn.relu(MATRIX)], 1),
        relay.expand_dims(relay.nn.relu(MATRIX), 1),
        relay.split(relay.nn.relu(MATRIX), 2, 1)[1],
        relay.reverse(relay.nn.relu(MATRIX), 1),
        relay.repeat(relay.nn.relu(MATRIX), 2, 1),
        relay.nn.relu(relay.repeat(relay.nn.relu(IMAGE), 2, 1)),
        relay.prod(relay.nn.relu(MATRIX), -1, keepdims=True),
        relay.einsum((relay.nn.relu(MATRIX), array(4, 5)), "ij,jk->ik"),
        convolution(array(3, 3, 4, 8), "HWIO", channels=8),
        convolution(array(3, 3, 4, 1), "HWOI", channels=4, groups=4),
        relay.nn.conv2d_transpose(
            IMAGE, array(6, 8, 4, 4), (2, 2), (1, 1), channels=8, kernel_size=(4, 4)
        ),
        relay.image.resize2d(IMAGE, (3, 3), layout="NHWC"),
        relay.nn.global_avg_pool2d(IMAGE, layout="NHWC"),
    ],
    ids=lambda body: body.op.name if isinstance(body, relay.Call) else "split",
)
def test_the_module_computes_the_same(body: relay.Expr) -> None:
    plain = module(body)
    (param,) = plain["main"].params
    x = RNG.standard_normal([int(extent) for extent in param.checked_type.shape]).astype(np.float32)
    with tvm.transform.PassContext(opt_level=1):
        run = relay.create_executor("graph", plain, tvm.cpu(), "llvm").evaluate()
        expected = run(x).numpy()
    (found,) = Model(steps.annotate(plain)).run(x)
    # Operands and result are rounded to FP16, in sums of at most 36 products of numbers below 4.
    np.testing.assert_allclose(found, expected, atol=3 * 36 * 4 * 2.0**-11, rtol=0)
