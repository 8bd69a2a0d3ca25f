"""The shared passes on Relay's functions: what stays FP32, what becomes part of a convolution."""

from __future__ import annotations

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import numpy as np  # isort: skip
import pytest  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.errors import ModelImportError  # isort: skip
from boltgen.passes.run import Partitioned, Passes  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.ir.dtypes import DType  # isort: skip
from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(7)


def constant(array: np.ndarray) -> relay.Constant:
    return relay.const(array.astype(np.float32))


def module(x: relay.Var, body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function([x], body))


def operators(made: tvm.IRModule) -> set[str]:
    found: set[str] = set()

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            found.add(str(expr.op.name))

    relay.analysis.post_order_visit(made["main"].body, visit)
    return found


def test_a_norm_by_the_mean_of_squares_of_large_activations() -> None:
    array = (300 * RNG.standard_normal((4, 64))).astype(np.float32)
    weight = RNG.standard_normal((32, 64)) / 8
    x = relay.var("x", shape=array.shape)
    squares = relay.mean(x * x, -1, keepdims=True)
    body = relay.nn.dense(x / relay.sqrt(squares + relay.const(1e-6)), constant(weight))
    partitioned = steps.annotate(module(x, body))
    assert len(partitioned.regions) == 2
    (found,) = Model(partitioned).run(array)
    normed = array / np.sqrt((array**2).mean(-1, keepdims=True) + 1e-6)
    # x, the normed value, the weight and the result are each rounded to FP16.
    bound = 4 * 2.0**-11 * (np.abs(normed) @ np.abs(weight).T)
    assert (np.abs(found - normed @ weight.T) <= bound).all()


def test_a_weight_beyond_fp16_keeps_its_product_in_fp32() -> None:
    weight = RNG.standard_normal((8, 16))
    weight[3, 5] = 1e6
    x = relay.var("x", shape=(4, 16))
    body = relay.nn.dense(relay.nn.dense(x, constant(np.eye(16))), constant(weight))
    partitioned = steps.annotate(module(x, body))
    assert len(partitioned.regions) == 1
    (reason,) = (
        each.reason
        for each in partitioned.placements
        if (each.operator, each.region) == ("matmul", None)
    )
    assert "1e+06" in reason
    assert "65504" in reason
    array = RNG.standard_normal((4, 16)).astype(np.float32)
    (found,) = Model(partitioned).run(array)
    # The product before rounds its operand and its result.
    bound = 3 * 2.0**-11 * (np.abs(array) @ np.abs(weight).T)
    assert (np.abs(found - array @ weight.T) <= bound).all()


def test_zeros_around_an_image_become_a_convolutions_padding() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6))
    padded = relay.nn.pad(x, ((0, 0), (0, 0), (0, 1), (1, 0)), 0.0)
    weight = constant(RNG.standard_normal((8, 4, 3, 3)))
    body = relay.nn.conv2d(padded, weight, channels=8, kernel_size=(3, 3), padding=(1, 1))
    partitioned = steps.annotate(module(x, body))
    (region,) = partitioned.regions
    assert region.workload.first.problem.padding == (1, 2, 2, 1)
    assert operators(partitioned.module()) == set()


def _in_groups(weight: np.ndarray, groups: int) -> tvm.IRModule:
    channels = groups * weight.shape[1]
    x = relay.var("x", shape=(1, channels, 6, 6))
    options = {"channels": len(weight), "kernel_size": (3, 3), "groups": groups}
    return module(x, relay.nn.relu(relay.nn.conv2d(x, constant(weight), **options)))


def _assert_convolves(partitioned: Partitioned, weight: np.ndarray, groups: int) -> None:
    filters, channels = weight.shape[:2]
    x = RNG.standard_normal((1, groups * channels, 6, 6)).astype(np.float32)
    (found,) = Model(partitioned).run(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    apart = windows.reshape(1, groups, channels, *windows.shape[2:])
    of_groups = weight.reshape(groups, filters // groups, channels, 3, 3)
    expected, size = (
        np.einsum("ngchwrs,gfcrs->ngfhw", f(apart), f(of_groups)).reshape(found.shape)
        for f in (np.array, np.abs)
    )
    # The operands and the result are rounded.
    assert (np.abs(found - np.maximum(expected, 0)) <= 3 * 2.0**-11 * size).all()


_IN_GROUPS = [
    pytest.param((4, 1, 3, 3), 4, "depthwise 1x6x6x4, 3x3", id="depthwise"),
    pytest.param((8, 1, 3, 3), 4, "depthwise 1x6x6x4 to 8, 3x3", id="several filters"),
    pytest.param((32, 32, 3, 3), 2, "conv 1x6x6x64 to 32, 3x3, 2 groups", id="groups"),
    pytest.param((8, 4, 3, 3), 2, "conv 1x6x6x8 to 8, 3x3", id="narrow groups"),
]


@pytest.mark.parametrize(("shape", "groups", "short"), _IN_GROUPS)
def test_a_convolution_in_groups_has_a_kernel(
    shape: tuple[int, ...], groups: int, short: str
) -> None:
    weight = RNG.standard_normal(shape)
    partitioned = steps.annotate(_in_groups(weight, groups))
    (region,) = partitioned.regions
    assert region.workload.short == short
    assert region.workload.epilogues == "relu(acc)"
    _assert_convolves(partitioned, weight, groups)


@pytest.mark.parametrize(("shape", "groups", "short"), _IN_GROUPS)
def test_tvm_computes_groups_that_have_no_kernel(
    shape: tuple[int, ...], groups: int, short: str
) -> None:
    del short
    weight = RNG.standard_normal(shape)
    passes = Passes(rejects=lambda workload: "of a whim")
    partitioned = steps.annotate(_in_groups(weight, groups), passes=passes)
    assert not partitioned.regions
    _assert_convolves(partitioned, weight, groups)


@pytest.mark.parametrize(
    ("shape", "groups", "layouts"),
    [
        ((4, 1, 3, 3), 4, ("NHWC", "HWOI")),
        ((8, 1, 3, 3), 4, ("NCHW", "OIHW")),
        ((64, 32, 3, 3), 2, ("NCHW", "OIHW")),
    ],
)
def test_what_stays_with_tvm_has_the_layouts_that_it_schedules(
    shape: tuple[int, ...], groups: int, layouts: tuple[str, str]
) -> None:
    passes = Passes(rejects=lambda workload: "of a whim")
    weight = RNG.standard_normal(shape)
    made = steps.annotate(_in_groups(weight, groups), passes=passes).module()
    found: list[tuple[str, str]] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and expr.op == tvm.ir.Op.get("nn.conv2d"):
            found.append((str(expr.attrs.data_layout), str(expr.attrs.kernel_layout)))

    relay.analysis.post_order_visit(made["main"].body, visit)
    assert found == [layouts]


def test_bf16_is_refused_by_name() -> None:
    x = relay.var("x", shape=(4, 64))
    body = relay.nn.dense(x, constant(RNG.standard_normal((32, 64))))
    with pytest.raises(ModelImportError, match=r"bfloat16.*relax"):
        steps.annotate(module(x, body), passes=Passes(precision=DType.BF16))
