"""Quantised operators, in float: weights are dequantised beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand


@rewrites("DequantizeLinear", why="constants are dequantised beforehand, and blocks written out")
def dequantise(node: Any, build: Builder) -> bool:
    """(x - zero point) * scale, for constants and for scales per block."""
    block = attribute(node, "block_size", 0)
    shape, float_type = build.scope.shape(node.input[0]), build.scope.dtype(node.input[1])
    scales = build.scope.shape(node.input[1])
    if shape is None or scales is None or float_type is None or float_type.kind != "f":
        return False
    if build.scope.tensor(node.input[0]) is None and not block:
        return False
    code = build.scope.onnx.helper.np_dtype_to_tensor_dtype(float_type)
    axis = attribute(node, "axis", 1)

    def spread(name: str, known: str) -> str:
        own = build.scope.shape(known) or ()
        return _spread(build, name, own, shape=shape, axis=axis, block=block)

    numbers = build("Cast", [node.input[0]], to=code)
    if zero := operand(node, 2):
        zero = build("Cast", [zero], to=code)
        numbers = build("Sub", [numbers, spread(zero, node.input[2])])
    build("Mul", [numbers, spread(node.input[1], node.input[1])], out=node.output[0])
    return True


def _spread(
    build: Builder,
    name: str,
    own: tuple[int, ...],
    *,
    shape: tuple[int, ...],
    axis: int,
    block: int,
) -> str:
    """A scale or zero point of shape `own` that broadcasts to the tensor's `shape`."""
    if own == ():
        return name
    if own == (1,):
        return build("Reshape", [name, build.constant([])])
    axis %= len(shape)
    if not block:
        return build("Reshape", [name, build.constant([-1] + [1] * (len(shape) - axis - 1))])
    places = np.minimum(np.arange(shape[axis]) // block, own[axis] - 1)
    return build("Gather", [name, build.constant(places)], axis=axis)


@rewrites("QLinearMatMul", why="it is dequantised, multiplied and quantised again")
def matmul(node: Any, build: Builder) -> bool:
    """A product of dequantised matrices."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = node.input
    if any(build.scope.dtype(name) != np.float32 for name in (a_scale, b_scale, scale)):
        return False
    left = build("DequantizeLinear", [a, a_scale, a_zero], axis=0)
    right = build("DequantizeLinear", [b, b_scale, b_zero], axis=-1)
    product = build("MatMul", [left, right])
    build("QuantizeLinear", [product, scale, zero], out=node.output[0])
    return True


@rewrites("QLinearConv", why="it is dequantised, convolved and quantised again")
def convolution(node: Any, build: Builder) -> bool:
    """A convolution of dequantised tensors; its bias has the scale of their product."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = node.input[:8]
    if any(build.scope.dtype(name) != np.float32 for name in (x_scale, w_scale, scale)):
        return False
    inputs = [
        build("DequantizeLinear", [x, x_scale, x_zero]),
        build("DequantizeLinear", [w, w_scale, w_zero], axis=0),
    ]
    if bias := operand(node, 8):
        numbers = build("Cast", [bias], to=build.scope.onnx.TensorProto.FLOAT)
        inputs.append(build("Mul", [numbers, build("Mul", [x_scale, w_scale])]))
    keys = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = build("Conv", inputs, **{key: attribute(node, key) for key in keys})
    build("QuantizeLinear", [result, scale, zero], out=node.output[0])
    return True
