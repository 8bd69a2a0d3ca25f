"""Quantised operators, in float: weights are dequantised beforehand."""

from __future__ import annotations

import numpy as np

from boltgen.frontend.onnx.rewrites.quantised_weights import is_whole, kept_whole
from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.ir.dtypes import FLOAT8
from boltgen.ir.quantisation import axis_fault, scale_fault


@rewrites(
    "DequantizeLinear",
    why="blocks are written out, and constants that no kernel takes so are dequantised beforehand",
)
def dequantise(build: Builder) -> str | None:
    """(x - zero point) * scale, for constants and for scales per block."""
    block, shape, dtype = build.get("block_size", 0), build.shape(), build.dtype(1)
    if dtype.kind != "f" or (build.scope.tensor(build.x) is None and not block):
        return None
    if is_whole(build):
        return None
    if (whole := kept_whole(build)) is not None:
        return whole
    code = build.scope.onnx.helper.np_dtype_to_tensor_dtype(dtype)
    axis = build.get("axis", 1) % max(len(shape), 1)

    def spread(name: str, place: int) -> str:
        """A scale or zero point that broadcasts to the tensor's shape."""
        own = build.shape(place)
        if own in {(), (1,)}:
            return build.Reshape(name, []) if own else name
        if not block:
            return build.Reshape(name, [-1] + [1] * (len(shape) - axis - 1))
        places = np.minimum(np.arange(shape[axis]) // block, own[axis] - 1)
        return build.Gather(name, places, axis=axis)

    numbers = build.Cast(build.x, to=code)
    if zero := build.operand(2):
        numbers = build.Sub(numbers, spread(build.Cast(zero, to=code), 2))
    return build.Mul(numbers, spread(build.operand(1), 1))


@rewrites("QuantizeLinear", "DequantizeLinear")
def narrow_floats(build: Builder) -> None:
    """Refuse computed floats of eight bits, but for what kernels multiply: a tensor with one scale,
    which saturates.
    """
    place = 0 if build.node.op_type == "DequantizeLinear" else 2
    dtype = build.scope.dtype(build.operand(place)) if build.operand(place) else None
    if dtype is None or not dtype.name.startswith("float8") or build.known(0) is not None:
        return
    scale, zero = build.known(1), build.known(2) if build.operand(2) else None
    has_one_scale = scale is not None and scale.size == 1 and not build.get("block_size", 0)
    is_around_zero = zero is not None and not zero.astype(np.float32).any()
    is_taken = has_one_scale and is_around_zero and build.get("saturate", 1) == 1
    if not (build.scope.packs_weights and dtype.name in FLOAT8 and is_taken):
        raise UnsupportedError(
            f"of {dtype.name}",
            "quantise to int8, or, with Relax, to float8_e4m3fn or float8_e5m2 with one constant "
            "scale, a zero point of 0 and saturate=1",
        )


@rewrites("QuantizeLinear", "DequantizeLinear")
def well_formed(build: Builder) -> None:
    """Refuse scales, zero points and axes that mean nothing; a weight may have any finite scale."""
    scales, zeros = build.known(1), build.known(2) if build.operand(2) else None
    is_weight = build.node.op_type == "DequantizeLinear" and build.known(0) is not None
    extents, block = build.extents(), build.get("block_size", 0)
    axis, faults = build.get("axis", 1), []
    of_several = [array for array in (scales, zeros) if array is not None and array.size > 1]
    if of_several and not block:
        counts = {
            name: array.size
            for name, array in (("scales", scales), ("zero points", zeros))
            if array is not None
        }
        place = axis % len(extents) if extents and -len(extents) <= axis < len(extents) else 0
        extent = extents[place] if extents else 1
        faults.append(
            axis_fault(axis, len(extents), counts, extent if isinstance(extent, int) else None)
        )
    if scales is not None and not is_weight:
        faults.append(scale_fault(scales))
    for found in filter(None, faults):
        raise UnsupportedError(f"of {build.x!r}: {found[0]}", found[1])


@rewrites("QLinearMatMul", why="it is dequantised, multiplied and quantised again")
def matmul(build: Builder) -> str | None:
    """A product of dequantised matrices."""
    if any(build.dtype(place) != np.float32 for place in (1, 4, 6)):
        return None
    left = build.DequantizeLinear(*build.node.input[:3], axis=0)
    right = build.DequantizeLinear(*build.node.input[3:6], axis=-1)
    return build.QuantizeLinear(build.MatMul(left, right), *build.node.input[6:])


@rewrites("QLinearConv", why="it is dequantised, convolved and quantised again")
def convolution(build: Builder) -> str | None:
    """A convolution of dequantised tensors; its bias has the scale of their product."""
    if any(build.dtype(place) != np.float32 for place in (1, 4, 6)):
        return None
    names = build.node.input
    inputs = [
        build.DequantizeLinear(*names[:3]),
        build.DequantizeLinear(*names[3:6], axis=0),
    ]
    if bias := build.operand(8):
        numbers = build.Cast(bias, to=build.scope.onnx.TensorProto.FLOAT)
        inputs.append(build.Mul(numbers, build.Mul(names[1], names[4])))
    keys = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = build.Conv(*inputs, **{key: build.get(key) for key in keys})
    return build.QuantizeLinear(result, *names[6:8])


@rewrites("ConvInteger", why="it is convolved in FP64, which has all of its sums")
def integers(build: Builder) -> str:
    """A convolution of 8-bit integers from which zero points are taken, as 32-bit integers."""
    proto = build.scope.onnx.TensorProto
    operands = []
    for place, zero in ((0, build.operand(2)), (1, build.operand(3))):
        numbers = build.Cast(build.operand(place), to=proto.DOUBLE)
        if zero:
            wide = build.Cast(zero, to=proto.DOUBLE)
            if place and build.extents(3):
                wide = build.Reshape(wide, [-1] + [1] * (len(build.extents(1)) - 1))
            numbers = build.Sub(numbers, wide)
        operands.append(numbers)
    keys = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    made = build.Conv(*operands, **{key: build.get(key) for key in keys})
    return build.Cast(made, to=proto.INT32)
