"""Quantised tensors: where dequantisations go, which products become products of integers.

Scales are powers of two, so that floats are exact too and all values are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boltgen.errors import ModelImportError
from boltgen.graph.attributes import Axis, Convolution
from boltgen.graph.graph import INPUT, Array, Expr, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.outline import Symbols, carve, computes_all
from boltgen.passes.precision.walk import normalise
from boltgen.passes.quantisation.integer_products import slower_by, with_integer_products
from boltgen.passes.quantisation.leaving import leaving
from boltgen.passes.quantisation.sink_dequantise import with_late_dequantisations
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload

ROWS, K, N = 24, 32, 16
RNG = np.random.default_rng(0)
Zero = tuple[str, int]


class Net(GraphBuilder):
    """A builder of quantised networks."""

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype="float32"))

    def numbers(self, scale: float | Array, zero: int | Array, dtype: str) -> tuple[int, int]:
        scales = self.constant(np.asarray(scale, np.float32))
        return scales, self.constant(np.asarray(zero).astype(dtype))

    def quantised(self, x: int, scale: float, zero: int, dtype: str, axis: int = 0) -> int:
        args = (x, *self.numbers(scale, zero, dtype))
        return self.operator("quantize", args, self.shape(x), dtype, axis=axis)

    def number(self, q: int, scale: float | Array, zero: int | Array, axis: int = 0) -> int:
        args = (q, *self.numbers(scale, zero, self.dtype(q)))
        return self.operator("dequantize", args, self.shape(q), "float32", axis=axis)

    def rounded(self, x: int, scale: float, zero: int, dtype: str) -> int:
        """A quantisation and its dequantisation."""
        return self.number(self.quantised(x, scale, zero, dtype), scale, zero)

    def weight(self, *shape: int, scale: float | Array = 2.0**-6, axis: int = 0) -> int:
        whole = self.constant(RNG.integers(-127, 128, shape, np.int8))
        zeros = np.zeros(np.shape(scale), np.int8)
        return self.number(whole, scale, zeros, axis)

    def conv(self, x: int, w: int, **given: Any) -> int:
        usual: dict[str, Any] = {
            "strides": (1, 1),
            "padding": (1, 1, 1, 1),
            "dilation": (1, 1),
            "groups": 1,
        }
        layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "NCHW"}
        n, _, h, wide = self.shape(x)
        shape = (n, self.shape(w)[0], h, wide)
        return self.operator("nn.conv2d", (x, w), shape, "float32", **(usual | layouts | given))


def mlp(net: Net, zero: Zero, end: Zero, bias: Array, relu: bool) -> int:
    dtype, middle = zero
    x = net.rounded(net.input(ROWS, K), 2.0**-4, middle, dtype)
    made = net.matmul(x, net.weight(K, N), "float32")
    made = net.elementwise("add", made, net.constant(bias))
    made = net.elementwise("nn.relu", made) if relu else made
    return net.rounded(made, 2.0**-1, end[1], end[0])


def passed(
    graph: Graph, rejects: Callable[[Workload], str | None] = computes_all
) -> tuple[Graph, list[str]]:
    """The graph after both passes, with equal values, and the reasons of products of floats."""
    reasons: list[str] = []
    made = with_integer_products(
        with_late_dequantisations(graph), rejects, lambda expr, reason: reasons.append(reason)
    )
    rng = np.random.default_rng(1)
    shapes = [expr.static_shape for expr in graph.exprs if expr.op == INPUT]
    inputs = [4 * rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    before, after = run(graph, inputs), run(made, inputs)
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    return made, reasons


def sums(graph: Graph) -> list[Expr]:
    return [expr for expr in graph.exprs if expr.dtype == "int32" and expr.op != "constant"]


# A whole number of steps of 2**-10, and numbers that are none.
WHOLE = (RNG.integers(-900, 900, N) * 2.0**-10).astype(np.float32)
OTHER = (WHOLE + np.float32(2.0**-13)).astype(np.float32)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [WHOLE, OTHER], ids=["whole", "other"])
@pytest.mark.parametrize("end", [("int8", 3), ("uint8", 0)])
@pytest.mark.parametrize("zero", [("int8", 0), ("int8", -7), ("int8", -128), ("uint8", 131)])
def test_a_product_of_quantised_tensors_is_one_of_integers(
    zero: Zero, end: Zero, bias: Array, relu: bool
) -> None:
    net = Net()
    graph, reasons = passed(net.graph(mlp(net, zero, end, bias, relu)))
    (product, *added) = sums(graph)
    assert product.op == "matmul"
    # Around 0 in one of the types, and without a bias of integers, the sums are all.
    is_corrected = zero not in {("int8", 0), ("int8", -128)} or bias is WHOLE
    assert [expr.op for expr in added] == ["add"] * is_corrected
    *_, last = (expr for expr in graph.exprs if expr.op == "quantize")
    # The steps of the result are in the product's scale if only a ReLU is between them.
    assert graph[last.args[1]].scalar == (1.0 if bias is WHOLE else 0.5)
    assert not reasons


@pytest.mark.parametrize("zero", [("int8", -128), ("uint8", 0)])
@pytest.mark.parametrize("pool", [False, True])
def test_an_image_around_zero_is_convolved_in_nhwc(zero: Zero, pool: bool) -> None:
    net = Net()
    dtype, middle = zero
    x = net.rounded(net.input(2, 16, 8, 8), 2.0**-4, middle, dtype)
    if pool:
        attrs: dict[str, Any] = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1)}
        attrs |= {"dilation": (1, 1), "ceil_mode": False, "layout": "NCHW"}
        x = net.operator("nn.max_pool2d", (x,), net.shape(x), "float32", **attrs)
        x = net.rounded(x, 2.0**-4, middle, dtype)
    made = net.conv(x, net.weight(N, 16, 3, 3, scale=2.0 ** -RNG.integers(5, 8, N), axis=0))
    graph, reasons = passed(net.graph(net.rounded(made, 0.5, 0, "int8")))
    assert not reasons
    (product,) = sums(graph)
    assert graph[product.args[0]].op == ("nn.max_pool2d" if pool else "quantize")
    assert graph[product.args[0]].dtype == "uint8"
    normal = normalise(graph).graph
    outlined, carved = carve(normal, Symbols(()))
    (region,) = carved
    problem = region.region.workload.single.problem
    assert (problem.in_dtype, problem.acc_dtype) == (DType.U8, DType.I32)
    # Per channel, the scale is a row.
    assert region.region.workload.single.loads[0].dtype is DType.F32
    assert outlined.operators["region"]


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 1, 3)])
def test_a_zero_point_is_put_around_an_image(padding: tuple[int, int, int, int]) -> None:
    net = Net()
    x = net.rounded(net.input(1, 3, 8, 8), 2.0**-4, 117, "uint8")
    made = net.conv(x, net.weight(N, 3, 3, 3), padding=padding)
    top, left, bottom, right = padding
    net.exprs[made] = replace(net[made], shape=(1, N, 6 + top + bottom, 6 + left + right))
    judged: list[Any] = []
    graph, reasons = passed(net.graph(made), lambda work: judged.append(work.single.problem))
    assert not reasons
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    problem: Any = region.region.workload.single.problem
    assert problem.a_shape == (1, 8 + top + bottom, 8 + left + right, 4)
    assert problem.padding == (0, 0, 0, 0)
    # The problem that was judged is the one that is written.
    (before,) = judged
    assert replace(before, out_dtype=problem.out_dtype) == problem


def test_the_few_channels_of_a_first_layer_become_four() -> None:
    net = Net()
    x = net.rounded(net.input(1, 3, 8, 8), 2.0**-4, 0, "int8")
    graph, reasons = passed(net.graph(net.conv(x, net.weight(N, 3, 3, 3))))
    assert not reasons
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    assert region.region.workload.single.problem.a_shape == (1, 8, 8, 4)


def test_a_residual_of_integers_is_loaded_as_integers() -> None:
    net = Net()
    x = net.quantised(net.input(ROWS, K), 2.0**-4, 3, "int8")
    made = net.matmul(net.number(x, 2.0**-4, 3), net.weight(K, K), "float32")
    total = net.elementwise("add", net.rounded(made, 0.25, 1, "int8"), net.number(x, 2.0**-4, 3))
    graph, _ = passed(net.graph(net.rounded(total, 0.5, -3, "int8")))
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    layer = region.region.workload.single
    assert [load.dtype for load in layer.loads] == [DType.I32, DType.I8]
    assert layer.problem.out_dtype is DType.F32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("scales", "its weight has scales for parts of K"),
        ("depthwise", "a depthwise convolution has no kernel of integers"),
        ("layouts", "its layouts are NCHW, OIHW and NHWC"),
    ],
)
def test_what_stays_a_product_of_floats_has_a_reason(change: str, reason: str) -> None:
    net = Net()
    x = net.rounded(net.input(1, N, 8, 8), 2.0**-4, 0, "int8")
    if change == "scales":
        scale = 2.0 ** -RNG.integers(5, 8, N)
        made = net.conv(x, net.weight(N, N, 3, 3, scale=scale, axis=1))
    elif change == "layouts":
        made = net.conv(x, net.weight(8, N, 3, 3), out_layout="NHWC")
        net.exprs[made] = replace(net[made], shape=(1, 8, 8, 8))
    else:
        made = net.conv(x, net.weight(N, 1, 3, 3), groups=N)
    graph, reasons = passed(net.graph(made))
    assert not sums(graph)
    (found,) = reasons
    assert reason in found


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_an_activation_of_sixteen_bits_has_a_reason(dtype: str) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-8, 300, dtype)
    graph, (reason,) = passed(net.graph(net.matmul(x, net.weight(K, N), "float32")))
    assert not sums(graph)
    assert f"float32, and not {dtype} to float32" in reason


def test_an_operand_that_is_no_constant_of_integers_has_a_reason() -> None:
    net = Net()
    x = net.rounded(net.input(K, K), 2.0**-4, 0, "int8")
    floats = net.constant(RNG.integers(-9, 9, (K, K)).astype(np.float32))
    for other in (floats, x):
        graph, (reason,) = passed(net.graph(net.matmul(x, other, "float32")))
        assert not sums(graph)
        assert "its right operand is no constant of whole numbers and scales" in reason


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_weight_that_the_model_quantises_is_one_of_integers(per_channel: bool) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 3, "int8")
    scale = 2.0 ** -RNG.integers(5, 8, N) if per_channel else np.float64(2.0**-6)
    floats = net.constant(RNG.standard_normal((N, K)).astype(np.float32))
    args = (floats, *net.numbers(scale, np.zeros(scale.shape), "int8"))
    whole = net.operator("quantize", args, (N, K), "int8", axis=0)
    weight = net.number(whole, scale, np.zeros(scale.shape), axis=0)
    made = net.matmul(x, net.permute_dims(weight, (1, 0)), "float32")
    graph, reasons = passed(net.graph(made))
    assert [expr.op for expr in sums(graph)] == ["matmul", "add"]
    assert not reasons


def test_a_product_that_no_kernel_computes_keeps_its_weight() -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 0, "int8")
    graph, reasons = passed(
        net.graph(net.matmul(x, net.weight(K, N), "float32")), lambda _: "too small"
    )
    assert not sums(graph)
    assert reasons == ["its activation is quantised, and it multiplies floats: too small"]


def test_one_column_stays_floats_and_equal_offsets_stay_a_row() -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 3, "int8")
    graph, reasons = passed(net.graph(net.matmul(x, net.weight(K, 1), "float32")))
    assert not sums(graph)
    assert "it has one column" in reasons[0]
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 3, "int8")
    same = net.number(net.constant(np.ones((K, N), np.int8)), 2.0**-3, 0)
    graph, _ = passed(net.graph(net.matmul(x, same, "float32")))
    _, (region,) = carve(normalise(graph).graph, Symbols(()))
    assert [load.dtype for load in region.region.workload.single.loads] == [DType.I32]


def test_sums_that_may_exceed_32_bits_stay_floats() -> None:
    net = Net()
    x = net.rounded(net.input(1, 70000), 2.0**-4, 0, "int8")
    graph, reasons = passed(net.graph(net.matmul(x, net.weight(70000, 2), "float32")))
    assert not sums(graph)
    assert "k=70000; sums of so many products of int8 may exceed int32" in reasons[0]


@pytest.mark.parametrize(
    ("step", "scale"),
    [(2.0**-4, 0.0), (2.0**-70, 2.0**-80), (2.0**-70, 2.0**-60), (2.0**9, 2.0**120)],
)
def test_a_scale_of_sums_that_fp32_does_not_hold_keeps_floats_and_the_bias(
    step: float, scale: float
) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), step, 0, "int8")
    scales = np.full(N, 2.0**-6)
    scales[3] = scale
    made = net.matmul(x, net.weight(K, N, scale=scales, axis=1), "float32")
    graph, (reason,) = passed(net.graph(net.elementwise("add", made, net.constant(WHOLE))))
    assert not sums(graph)
    assert "which FP32 does not hold as a normal number" in reason


@pytest.mark.parametrize(
    ("dtype", "number", "zero"),
    [
        ("int32", 65537, 0),
        ("uint16", 65530, 0),
        ("int64", 65537, 0),
        ("uint64", 2**64 - 1, 0),
        ("int32", 2**31 - 1, -(2**31) + 1),
        ("uint8", 128, 0),
    ],
)
def test_numbers_of_a_weight_that_int8_does_not_hold_stay_floats(
    dtype: str, number: int, zero: int
) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 0, "int8")
    whole = net.constant(np.full((K, N), number, dtype))
    graph, (reason,) = passed(
        net.graph(net.matmul(x, net.number(whole, 2.0**-20, zero), "float32"))
    )
    assert not sums(graph)
    assert "a weight's distance from its zero point needs nine bits or more" in reason


def test_wide_numbers_of_a_weight_near_their_zero_point_become_int8() -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 0, "int8")
    whole = net.constant(RNG.integers(65408, 65535, (K, N)).astype(np.uint16))
    graph, reasons = passed(net.graph(net.matmul(x, net.number(whole, 2.0**-6, 65500), "float32")))
    (product,) = sums(graph)
    assert graph[product.args[1]].dtype == "int8"
    assert not reasons


@pytest.mark.parametrize(
    ("bias", "wanted"), [(WHOLE, []), (OTHER, ["dequantize", "add", "nn.relu"])]
)
def test_numbers_in_steps_of_a_result_have_no_observed_range(
    bias: Array, wanted: list[str]
) -> None:
    net = Net()
    mlp(net, ("int8", 3), ("int8", 0), bias, relu=True)
    ends = (-100.0, 100.0)
    net.exprs = [
        replace(each, observed=ends) if each.op in {"matmul", "add", "nn.relu"} else each
        for each in net.exprs
    ]
    graph, _ = passed(net.graph(len(net.exprs) - 1))
    assert [expr.op for expr in graph.exprs if expr.observed is not None] == wanted


@pytest.mark.parametrize("number", [1.0, np.inf])
def test_a_bias_of_too_many_steps_is_added_in_floats(number: float) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-50, 0, "int8")
    made = net.matmul(x, net.weight(K, N, scale=2.0**-60), "float32")
    bias = np.full(N, number, np.float32)
    graph, reasons = passed(net.graph(net.elementwise("add", made, net.constant(bias))))
    assert [expr.op for expr in sums(graph)] == ["matmul"]
    assert not reasons


@pytest.mark.parametrize(
    ("operator", "data", "kernel", "groups", "operands"),
    [
        ("nn.conv2d", "NCHW", "OIHW", 1, ("int8", "int8")),
        ("nn.conv2d", "NHWC", "HWIO", 1, ("uint8", "int8")),
        ("nn.conv2d", "NCHW", "OIHW", 1, ("int16", "int8")),
        ("nn.conv2d", "NCHW", "OIHW", 1, ("int8", "uint8")),
        ("nn.conv2d", "NCHW", "OIHW", 8, ("int8", "int8")),
        ("nn.conv3d", "NCDHW", "OIDHW", 1, ("int8", "int8")),
        ("nn.conv2d", "NCHW4c", "OIHW4o4i", 1, ("int8", "int8")),
    ],
)
def test_only_images_of_bytes_are_convolved_in_nhwc(
    operator: str, data: str, kernel: str, groups: int, operands: tuple[str, str]
) -> None:
    rank = len(data) - 2 if data.isalpha() else 2
    extents = {"N": 1, "C": 8, "O": 16, "I": 8 // groups}
    x_shape = [extents.get(axis, 6) for axis in data if axis.isupper()]
    w_shape = [extents.get(axis, 3) for axis in kernel if axis.isupper()]
    made = [{**extents, "C": 16}.get(axis, 4) for axis in data if axis.isupper()]
    if not data.isalpha():
        x_shape[1], made[1] = 2, 4
        w_shape[:2] = 4, 2
        x_shape, made, w_shape = [*x_shape, 4], [*made, 4], [*w_shape, 4, 4]
    net = Net()
    x = net.add(Expr(op=INPUT, shape=tuple(x_shape), dtype=operands[0]))
    w = net.constant(RNG.integers(0, 9, w_shape).astype(operands[1]))
    attrs: dict[str, Any] = {"strides": (1,) * rank, "padding": (0,) * 2 * rank}
    attrs |= {"dilation": (1,) * rank, "groups": groups}
    attrs |= {"data_layout": data, "kernel_layout": kernel, "out_layout": data}
    graph = net.graph(net.operator(operator, (x, w), tuple(made), "int32", **attrs))
    normal = normalise(graph).graph
    (product,) = (expr for expr in normal.exprs if expr.op == operator)
    layouts = (
        product.attrs.of(Convolution).data_layout,
        product.attrs.of(Convolution).kernel_layout,
    )
    is_ours = operator == "nn.conv2d" and data.isalpha() and groups == 1
    is_ours = is_ours and operands in {("int8", "int8"), ("uint8", "int8")}
    assert layouts == (("NHWC", "OHWI") if is_ours else (data, kernel))
    _, carved = carve(normal, Symbols(()))
    assert len(carved) == is_ours
    if data.isalpha():
        image = RNG.integers(0, 9, x_shape).astype(operands[0])
        assert np.array_equal(run(graph, [image]), run(normal, [image]))


@pytest.mark.parametrize("operands", [("int32", "int32"), ("int16", "int8"), ("int8", "uint8")])
def test_a_matmul_of_other_integers_stays(operands: tuple[str, str]) -> None:
    net = Net()
    x = net.add(Expr(op=INPUT, shape=(ROWS, K), dtype=operands[0]))
    w = net.constant(np.ones((K, N), operands[1]))
    graph = net.graph(net.matmul(x, w, "int32"))
    assert [expr.op for expr in normalise(graph).graph.exprs] == ["input", "constant", "matmul"]


def test_views_move_integers_and_equal_quantisations_cancel() -> None:
    net = Net()
    x = net.rounded(net.input(4, 6), 2.0**-4, 5, "uint8")
    turned = net.permute_dims(x, (1, 0))
    graph, _ = passed(net.graph(net.reshape(net.rounded(turned, 2.0**-4, 5, "uint8"), (24,))))
    assert [expr.op for expr in graph.exprs if expr.op not in {"input", "constant"}] == [
        "quantize",
        "permute_dims",
        "reshape",
        "dequantize",
    ]


@pytest.mark.parametrize("scale", [-(2.0**-6), 0.0])
def test_a_weight_behind_a_view_has_any_scale(scale: float) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 7, "uint8")
    whole = net.permute_dims(net.constant(RNG.integers(-9, 9, (N, K), np.int8)), (1, 0))
    graph, reasons = passed(net.graph(net.matmul(x, net.number(whole, scale, 0), "float32")))
    assert len(sums(graph)) == (2 if scale else 0)
    assert len(reasons) == (0 if scale else 1)


def test_a_maximum_stays_behind_a_negative_scale() -> None:
    net = Net()
    whole = net.constant(RNG.integers(-9, 9, (1, 8, 8, 4), np.int8))
    x = net.number(net.permute_dims(whole, (0, 3, 1, 2)), -0.5, 0)
    attrs: dict[str, Any] = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0, 0, 0)}
    attrs |= {"dilation": (1, 1), "ceil_mode": False, "layout": "NCHW"}
    made = net.operator("nn.max_pool2d", (x,), (1, 4, 4, 4), "float32", **attrs)
    graph = net.graph(made)
    assert np.array_equal(run(graph, []), run(with_late_dequantisations(graph), []))


def test_integers_that_others_read_keep_their_type() -> None:
    net = Net()
    q = net.quantised(net.input(4, 6), 2.0**-4, -128, "int8")
    graph, _ = passed(net.graph((net.number(q, 2.0**-4, -128), q)))  # type: ignore[arg-type]
    assert graph.exprs[3].dtype == "int8"


@pytest.mark.parametrize(
    ("scale", "zero", "axis", "message"),
    [
        (0.0, 0, 0, r"scale is 0, which is not positive; calibrate"),
        (-0.5, 0, 0, r"scale is -0.5, which is not positive"),
        (np.nan, 0, 0, r"scale is nan, which is not finite"),
        (np.inf, 0, 0, r"scale is inf, which is not finite"),
        (np.float32([1, 2, 0, 1]), 0, 0, r"scale\[2\] is 0, which is not positive"),
        (np.float32([1, 2, 3]), 0, 0, r"3 scales along axis 0, which has 4 places; give one, or 4"),
        (np.ones(4, np.float32), 0, 2, r"axis 2 does not exist: the tensor has 2 axes; name"),
    ],
)
def test_a_quantisation_that_means_nothing_is_named(
    scale: Any, zero: int, axis: int, message: str
) -> None:
    net = Net()
    x = net.input(4, 6)
    args = (x, *net.numbers(scale, zero, "int8"))
    graph = net.graph(net.operator("quantize", args, (4, 6), "int8", axis=axis))
    with pytest.raises(
        ModelImportError, match=f"quantize of input .4, 6. to int8: its? .*{message}"
    ):
        with_late_dequantisations(graph)


def test_a_zero_point_beyond_the_type_is_named() -> None:
    net = Net()
    scale, _ = net.numbers(0.5, 0, "int8")
    args = (net.input(4, 6), scale, net.constant(np.int32(200)))
    graph = net.graph(net.operator("quantize", args, (4, 6), "int8", axis=0))
    with pytest.raises(ModelImportError, match="zero point 200 is no int8, from -128 to 127; give"):
        with_late_dequantisations(graph)


def test_rounding_is_half_to_even_and_clamps() -> None:
    net = Net()
    graph = net.graph(net.quantised(net.input(8), 1.0, 2, "int8"))
    x = np.float32([0.5, 1.5, 2.5, -0.5, 200.0, -200.0, np.inf, -np.inf])
    (found,) = run(graph, [x])
    assert found.tolist() == [2, 4, 4, 2, 127, -128, 127, -128]


class _Times:
    """Times by the bytes of an operand of the product, as `GraphCosts` has them."""

    move_origin = "a table"

    def __init__(self, integers_us: float, floats_us: float) -> None:
        self._times_us = {1: integers_us, 2: floats_us}
        self.asked: list[Workload] = []

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        self.asked += workloads
        sizes = (workload.single.problem.in_dtype.size_bytes for workload in workloads)
        times_us = tuple(self._times_us[size] for size in sizes)
        return KernelTimes(times_us=times_us, origin=self.move_origin)

    def move_us(self, bytes_moved: int, launches: int) -> float:
        raise AssertionError("nothing is moved")


@pytest.mark.parametrize(
    ("integers_us", "reason"),
    [
        (2.0, None),
        (2.5, "it takes 2.5 us in int8 and 2.0 us in float16 (a table)"),
    ],
)
def test_a_product_that_is_slower_in_integers_stays_one_of_floats(
    integers_us: float, reason: str | None
) -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 3, "int8")
    times, reasons = _Times(integers_us, 2.0), list[str]()
    graph = net.graph(net.matmul(x, net.weight(K, N), "float32"))
    made = with_integer_products(
        graph,
        computes_all,
        lambda _, found: reasons.append(found),
        slower_by(times, DType.F16, DType.F32),
    )
    assert bool(sums(made)) == (reason is None)
    assert [found.partition("floats: ")[2] for found in reasons] == [reason] * bool(reason)
    # Both store their results in FP16.
    assert {each.single.problem.out_dtype for each in times.asked} == {DType.F16}


@pytest.mark.parametrize("other", [2.0**-4, 2.0**-5])
def test_a_concatenation_of_equal_scales_joins_bytes(other: float) -> None:
    net = Net()
    parts = [net.rounded(net.input(4, 6), scale, 5, "uint8") for scale in (2.0**-4, other)]
    joined = net.operator("concat", tuple(parts), (4, 12), "float32", Axis(1))
    graph, _ = passed(net.graph(net.rounded(joined, 2.0**-4, 5, "uint8")))
    (made,) = (expr for expr in graph.exprs if expr.op == "concat")
    is_equal = other == 2.0**-4
    assert made.dtype == ("uint8" if is_equal else "float32")
    assert len(graph.operators["quantize"]) == (2 if is_equal else 3)
    wanted = "concat leaves INT8 in 2 places: its operands have different scales or zero points"
    notes = leaving(graph, [])
    assert [note.startswith(wanted) for note in notes] == [True] * (not is_equal)


def test_what_leaves_integers_is_named() -> None:
    net = Net()
    x = net.rounded(net.input(ROWS, K), 2.0**-4, 0, "int8")
    soft = net.operator("nn.softmax", (x,), net.shape(x), "float32", Axis(-1))
    graph = net.graph(net.rounded(net.elementwise("nn.relu", soft), 2.0**-7, 0, "int8"))
    (note,) = leaving(with_late_dequantisations(graph), [])
    assert note == (
        "nn.softmax leaves INT8 in 1 place: no kernel computes it of integers; it reads floats."
    )
