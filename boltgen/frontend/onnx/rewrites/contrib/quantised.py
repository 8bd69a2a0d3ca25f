"""Quantised operators of com.microsoft, as quantisations around standard operators.

Source: ONNX Runtime, docs/ContribOperators.md. Operands are numbers, scales and zero points, one
after another; the result's scale and zero point follow them. A pass makes integer products of what
is written here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.normalisation import reduced
from boltgen.frontend.onnx.rewrites.quantisation import convolved, dequantised, requantised
from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites

_STANDARD = "the standard operator of this name takes its place"
_WHY = "it is dequantised, computed and quantised again"
_POOLED = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


@rewrites("com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear", why=_STANDARD)
def quantised(build: Builder) -> str:
    """Write quantisation to and from integers of 8 and 16 bits as the standard operators.

    Raises:
        UnsupportedError: the integers are others.
    """
    is_from = build.node.op_type == "DequantizeLinear"
    place = 0 if is_from else 2
    whole = build.dtype(place) if build.operand(place) else np.dtype(np.uint8)
    taken = {"int8", "uint8", "int16", "uint16"} | ({"int32"} if is_from else set())
    if whole.name not in taken and build.known(0) is None:
        raise UnsupportedError(
            f"of {build.x!r} {'from' if is_from else 'to'} {whole.name}",
            "quantise to int8 or uint8",
        )
    proto, (x, scale, *zero) = build.scope.onnx.TensorProto, build.node.input
    is_narrow = build.dtype(1) == np.float16
    if is_narrow:  # the standard operators take FP16 in newer operator sets only
        scale = build.Cast(scale, to=proto.FLOAT)
        x = x if is_from else build.Cast(x, to=proto.FLOAT)
    made = build.many(build.node.op_type, [x, scale, *zero], 1, axis=build.get("axis"))[0]
    return build.Cast(made, to=proto.FLOAT16) if is_narrow and is_from else made


@rewrites("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul", why=_WHY)
def binary(build: Builder) -> str:
    """A sum or a product of two tensors, element by element."""
    operator = build.node.op_type.removeprefix("QLinear")
    made = build.many(operator, [dequantised(build, 0), dequantised(build, 3)], 1)[0]
    return requantised(build, made, 6, build.dtype())


@rewrites(
    *("com.microsoft.QLinearSigmoid", "com.microsoft.QLinearLeakyRelu"),
    "com.microsoft.QLinearSoftmax",
    why=_WHY,
)
def unary(build: Builder) -> str:
    """A function of one tensor."""
    operator = build.node.op_type.removeprefix("QLinear")
    given: dict[str, Any] = {}
    if operator == "LeakyRelu":
        given = {"alpha": build.get("alpha", 0.01)}
    elif operator == "Softmax":
        rank, axis = len(build.extents()), build.get("axis", -1)
        if build.get("opset", 13) < 13 and axis % rank != rank - 1:
            raise UnsupportedError(
                f"opset={build.get('opset')} and axis={axis}, a softmax of several axes",
                "export the model with operator set 13",
            )
        given = {"axis": axis}
    made = build.many(operator, [dequantised(build, 0)], 1, **given)[0]
    return requantised(build, made, 3, build.dtype())


@rewrites("com.microsoft.QLinearReduceMean", why=_WHY)
def mean(build: Builder) -> str:
    """The mean along axes, or of all numbers."""
    axes, keepdims = build.get("axes"), bool(build.get("keepdims", 1))
    axes = axes or list(range(len(build.extents())))
    made = reduced(build, "ReduceMean", dequantised(build, 0), axes, keepdims=keepdims)
    return requantised(build, made, 3, build.dtype())


@rewrites("com.microsoft.QLinearGlobalAveragePool", "com.microsoft.QLinearAveragePool", why=_WHY)
def pooled(build: Builder) -> str:
    """The mean of pixels; the channels may come last."""
    operator = build.node.op_type.removeprefix("QLinear")
    keys = _POOLED if operator == "AveragePool" else ()
    given = {key: build.get(key) for key in keys}
    image = _channels_first(build, dequantised(build, 0))
    made = build.many(operator, [image], 1, **given)[0]
    return requantised(build, _channels_last(build, made), 3, build.dtype())


def _channels_first(build: Builder, x: str) -> str:
    rank = len(build.extents())
    order = [0, rank - 1, *range(1, rank - 1)]
    return build.Transpose(x, perm=order) if build.get("channels_last", 0) else x


def _channels_last(build: Builder, x: str) -> str:
    rank = len(build.extents())
    order = [0, *range(2, rank), 1]
    return build.Transpose(x, perm=order) if build.get("channels_last", 0) else x


@rewrites("com.microsoft.QLinearConv", why=_WHY)
def convolution(build: Builder) -> str:
    """A convolution. Images may have their channels last; filters have their channels second."""
    made = convolved(build, _channels_first(build, dequantised(build, 0)))
    return requantised(build, _channels_last(build, made), 6, build.dtype())


@rewrites("com.microsoft.QLinearConcat", why=_WHY)
def joined(build: Builder) -> str:
    """Tensors side by side; the result's scale and zero point are the first operands."""
    parts = [dequantised(build, first) for first in range(2, len(build.node.input), 3)]
    made = build.many("Concat", parts, 1, axis=build.get("axis"))[0]
    return requantised(build, made, 0, build.dtype(2))


@rewrites("com.microsoft.QLinearWhere", why=_WHY)
def chosen(build: Builder) -> str:
    """One of two tensors, element by element."""
    made = build.Where(build.x, dequantised(build, 1), dequantised(build, 4))
    return requantised(build, made, 7, build.dtype(1))


@rewrites("com.microsoft.QGemm", why=_WHY)
def gemm(build: Builder) -> str:
    """A Gemm; C counts steps of alpha times both scales, and only some results are quantised."""
    keys, alpha = ("transA", "transB"), build.get("alpha", 1.0)
    weight_axis = 0 if build.get("transB", 0) else 1
    operands = [dequantised(build, 0), dequantised(build, 3, weight_axis)]
    if bias := build.operand(6):
        steps = build.Mul(build.operand(1), build.operand(4))
        numbers = build.Cast(bias, to=build.scope.onnx.TensorProto.FLOAT)
        operands.append(build.Mul(numbers, build.Mul(steps, np.float32(alpha))))
    made = build.Gemm(*operands, alpha=alpha, **{key: build.get(key) for key in keys})
    return requantised(build, made, 7, build.dtype()) if build.operand(7) else made


@rewrites("com.microsoft.MatMulIntegerToFloat", why="its integers are multiplied, and scaled")
def to_floats(build: Builder) -> str:
    """A product of integers, times the scales of both, and a bias."""
    names = [build.operand(place) for place in (0, 1, 4, 5)]
    return _scaled(build, names, build.operand(2), build.operand(3), build.operand(6))


@rewrites(
    "com.microsoft.DynamicQuantizeMatMul",
    why="its left operand is quantised by the ends of its numbers, and integers are multiplied",
)
def dynamic(build: Builder) -> str:
    """A product of a tensor that is quantised as it comes, and quantised weights."""
    whole, step, zero = build.many("DynamicQuantizeLinear", [build.x], 3)
    names = [whole, build.operand(1), zero, build.operand(3)]
    return _scaled(build, names, step, build.operand(2), build.operand(4))


def _scaled(build: Builder, names: list[str], left: str, right: str, bias: str) -> str:
    """Return a MatMulInteger of operands and zero points, times two scales, and a bias."""
    sums = build.Cast(build.MatMulInteger(*names), to=build.scope.onnx.TensorProto.FLOAT)
    product = build.Mul(sums, build.Mul(left, right))
    return build.Add(product, bias) if bias else product
