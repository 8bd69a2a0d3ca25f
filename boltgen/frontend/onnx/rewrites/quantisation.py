"""Quantised operators, as products of dequantised tensors that are quantised again.

The graph has one form of quantisation, QuantizeLinear and DequantizeLinear, from which a pass makes
products of integers. Integers of fewer than eight bits and floats of eight or four are constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from boltgen.frontend.onnx.fold import evaluated
from boltgen.frontend.onnx.rewrites.quantised_weights import is_whole, kept_whole
from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Extents
from boltgen.ir.dtypes import FLOAT8
from boltgen.ir.quantisation import axis_fault, blocks_fault, scale_fault, types_fault

_COMPUTED = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
_CONVOLVED = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@rewrites(
    "DequantizeLinear",
    why="blocks are written out, and constants that no kernel takes so are dequantised beforehand",
)
def dequantise(build: Builder) -> str | None:
    """(x - zero point) * scale, for constants and for scales per block."""
    _check(build)
    block, dtype = build.get("block_size", 0), _made(build)
    is_constant = build.scope.tensor(build.x) is not None
    if not is_constant and not block:
        return _of_scale(build, dtype)
    shape = build.shape()
    if dtype.kind != "f" or is_whole(build):
        return None
    if (whole := kept_whole(build)) is not None:
        return whole
    axis = build.get("axis", 1) % max(len(shape), 1)
    numbers = _floats(build, 0, dtype)
    if build.operand(2):
        numbers = build.Sub(numbers, _spread(build, _floats(build, 2, dtype), 2, axis, block))
    return build.Mul(numbers, _spread(build, _floats(build, 1, dtype), 1, axis, block))


@rewrites(
    "QuantizeLinear",
    why="blocks and types that a converter lacks are written with standard operators",
)
def quantise(build: Builder) -> str | None:
    """round(x / scale) + zero point, clamped: scales per block, and types that differ."""
    _check(build)
    if all(not name or build.scope.tensor(name) is not None for name in build.node.input):
        found = evaluated(build.node, build.scope)
        return None if found is None else build.constant(found[0])
    block, precision = build.get("block_size", 0), build.get("precision", 0)
    code, types = build.get("output_dtype", 0), [build.dtype(place) for place in (0, 1)]
    float32 = build.scope.onnx.TensorProto.FLOAT
    if precision not in {0, float32, _code(build, types[1])}:
        name = build.scope.onnx.TensorProto.DataType.Name(precision)
        raise UnsupportedError(f"precision={name}", "leave the attribute out: FP32 is at least it")
    is_plain = types == [np.dtype(np.float32)] * 2 and not precision and not block
    if is_plain and (build.operand(2) or not code):
        return None
    whole = _integers(build)
    zero = build.operand(2) or np.zeros((), whole)
    x, scale = _floats(build, 0, np.dtype(np.float32)), _floats(build, 1, np.dtype(np.float32))
    axis = build.get("axis", 1)
    if not block:
        return build.QuantizeLinear(x, scale, zero, axis=axis)
    axis %= max(len(build.shape()), 1)
    nearest = build.Round(build.Div(x, _spread(build, scale, 1, axis, block)))
    if build.operand(2):
        middle = _spread(build, _floats(build, 2, np.dtype(np.float32)), 2, axis, block)
        nearest = build.Add(nearest, middle)
    ends = np.iinfo(whole)
    clamped = build.Clip(nearest, np.float32(ends.min), np.float32(ends.max))
    return build.Cast(clamped, to=_code(build, whole))


def _made(build: Builder) -> np.dtype[Any]:
    """Return the type of a DequantizeLinear's result."""
    code = build.get("output_dtype", 0)
    made: np.dtype[Any] = (
        build.scope.onnx.helper.tensor_dtype_to_np_dtype(code) if code else build.dtype(1)
    )
    return made


def _of_scale(build: Builder, made: np.dtype[Any]) -> str | None:
    """Return a dequantisation with a scale of the result's type, or None if it has this type."""
    if build.dtype(1) == made:
        return None
    scale = build.Cast(build.operand(1), to=_code(build, made))
    return build.DequantizeLinear(build.x, scale, build.operand(2), axis=build.get("axis", 1))


def _integers(build: Builder) -> np.dtype[Any]:
    """Return the type of a QuantizeLinear's result."""
    code = build.get("output_dtype", 0)
    if build.operand(2) or not code:
        return build.dtype(2) if build.operand(2) else np.dtype(np.uint8)
    found: np.dtype[Any] = build.scope.onnx.helper.tensor_dtype_to_np_dtype(code)
    return found


def _code(build: Builder, dtype: np.dtype[Any]) -> int:
    return int(build.scope.onnx.helper.np_dtype_to_tensor_dtype(dtype))


def _floats(build: Builder, place: int, dtype: np.dtype[Any]) -> str:
    """Return an operand as floats of `dtype`; narrow types are cast here, by NumPy."""
    known = build.known(place)
    if known is not None:
        return build.constant(known.astype(dtype))
    name = build.operand(place)
    return name if build.dtype(place) == dtype else build.Cast(name, to=_code(build, dtype))


def _spread(build: Builder, name: str, place: int, axis: int, block: int) -> str:
    """Return scales or zero points, the operand at `place`, as they broadcast to the tensor."""
    own, shape = build.shape(place), build.shape()
    if own in {(), (1,)}:
        return build.Reshape(name, []) if own else name
    if not block:
        return build.Reshape(name, [-1] + [1] * (len(shape) - axis - 1))
    places = np.minimum(np.arange(shape[axis]) // block, own[axis] - 1)
    return build.Gather(name, places, axis=axis)


def _is_multiplied(build: Builder) -> bool:
    """Return whether kernels multiply a computed tensor of 8-bit floats: it has one constant scale,
    and saturates.
    """
    scale, zero = build.known(1), build.known(2) if build.operand(2) else None
    has_one_scale = scale is not None and scale.size == 1 and not build.get("block_size", 0)
    is_around_zero = zero is not None and not zero.astype(np.float32).any()
    is_saturating = build.get("saturate", 1) == 1
    return build.scope.packs_weights and has_one_scale and is_around_zero and is_saturating


def _check(build: Builder) -> None:
    """Check a quantisation's types, scales, zero points and axis.

    Raises:
        UnsupportedError: they mean nothing, or computed numbers have a type that no kernel has. A
            constant may have any type, and any finite scale.
    """
    is_from = build.node.op_type == "DequantizeLinear"
    is_constant = build.scope.tensor(build.x) is not None
    whole = build.dtype() if is_from else _integers(build)
    is_taken = whole.name in _COMPUTED or (whole.name in FLOAT8 and _is_multiplied(build))
    if not is_taken and not is_constant:
        raise UnsupportedError(
            f"of {build.x!r} {'from' if is_from else 'to'} {whole.name}",
            "quantise activations to int8 or uint8, or, with Relax, to float8_e4m3fn or "
            "float8_e5m2 with one constant scale, a zero point of 0 and saturate=1; only constants "
            "may have other types",
        )
    extents, block = build.extents(), build.get("block_size", 0)
    axis, faults = build.get("axis", 1), []
    shapes = {"scales": build.extents(1)}
    if build.operand(2):
        shapes["zero points"] = build.extents(2)
        code = build.get("output_dtype", 0) if not is_from else 0
        wanted = build.scope.onnx.helper.tensor_dtype_to_np_dtype(code) if code else whole
        faults.append(types_fault(wanted.name, build.dtype(2).name))
    if block:
        faults.append(blocks_fault(axis, extents, block, shapes))
    else:
        faults.append(_several_fault(axis, extents, shapes))
    scales = build.known(1)
    if scales is not None and not (is_from and is_constant):
        faults.append(scale_fault(scales))
    for found in filter(None, faults):
        raise UnsupportedError(f"of {build.x!r}: {found[0]}", found[1])


def _several_fault(
    axis: int, extents: Extents, shapes: Mapping[str, Extents]
) -> tuple[str, str] | None:
    """Return what is wrong with several scales or zero points along an axis, or None."""
    counts = {
        name: prod(int(extent) for extent in shape if isinstance(extent, int))
        for name, shape in shapes.items()
        if all(isinstance(extent, int) for extent in shape)
    }
    if all(count == 1 for count in counts.values()):
        return None
    is_there = -len(extents) <= axis < len(extents)
    extent = extents[axis if is_there else 0] if extents else 1
    known = extent if isinstance(extent, int) else None
    return axis_fault(axis, len(extents), counts, known)


@rewrites("DynamicQuantizeLinear", why="a tensor of zeros has the scale 1, as in ONNX Runtime")
def dynamic(build: Builder) -> list[str]:
    """Quantise by the ends of the tensor's numbers; the results have a scale and a zero point."""
    zero, most = np.float32(0), np.float32(255)
    low = build.Min(build.ReduceMin(build.x, keepdims=0), zero)
    high = build.Max(build.ReduceMax(build.x, keepdims=0), zero)
    step = build.Div(build.Sub(high, low), most)
    step = build.Where(build.Equal(step, zero), np.float32(1), step)
    middle = build.Round(build.Clip(build.Div(build.Neg(low), step), zero, most))
    whole = build.Cast(middle, to=build.scope.onnx.TensorProto.UINT8)
    return [build.QuantizeLinear(build.x, step, whole), step, whole]


def dequantised(build: Builder, first: int, axis: int | None = None) -> str:
    """Return the floats of three operands: numbers, scales and zero points, from place `first`.

    Scales are taken in FP32, and along `axis` if they are several in one row.
    """
    names = [build.operand(first + place) for place in range(3)]
    ranks = [len(build.extents(first + place)) if name else 0 for place, name in enumerate(names)]
    float32 = build.scope.onnx.TensorProto.FLOAT
    if build.dtype(first + 1) != np.float32:
        names[1] = build.Cast(names[1], to=float32)
    if max(ranks[1:]) < 2:
        return build.DequantizeLinear(*names, axis=axis)
    numbers = build.Cast(names[0], to=float32)
    if names[2]:
        numbers = build.Sub(numbers, build.Cast(names[2], to=float32))
    return build.Mul(numbers, names[1])


def requantised(build: Builder, value: str, scale: int, dtype: np.dtype[Any]) -> str:
    """Quantise a value by the scale at place `scale` and the zero point behind it, to `dtype`."""
    names = [build.operand(scale), build.operand(scale + 1)]
    if build.dtype(scale) != np.float32:
        names[0] = build.Cast(names[0], to=build.scope.onnx.TensorProto.FLOAT)
    if prod(build.shape(scale)) != 1:
        raise UnsupportedError(
            f"of {build.node.output[0]!r}: it has {prod(build.shape(scale))} scales of the result",
            "give the result one scale, or write it as QuantizeLinear",
        )
    return build.QuantizeLinear(value, names[0], names[1] or np.zeros((), dtype))


@rewrites("QLinearMatMul", why="it is dequantised, multiplied and quantised again")
def matmul(build: Builder) -> str:
    """A product of dequantised matrices; A may have a scale for each row, B for each column."""
    rows = -2 if len(build.extents()) > 1 else -1
    product = build.MatMul(dequantised(build, 0, rows), dequantised(build, 3, -1))
    return requantised(build, product, 6, build.dtype(7))


@rewrites("QLinearConv", why="it is dequantised, convolved and quantised again")
def convolution(build: Builder) -> str:
    """A convolution of dequantised tensors; its bias has the scale of their product."""
    return requantised(build, convolved(build, dequantised(build, 0)), 6, build.dtype(7))


def convolved(build: Builder, image: str) -> str:
    """Return the convolution of a QLinearConv, of a dequantised image."""
    inputs = [image, dequantised(build, 3, 0)]
    if bias := build.operand(8):
        numbers = build.Cast(bias, to=build.scope.onnx.TensorProto.FLOAT)
        inputs.append(build.Mul(numbers, build.Mul(build.operand(1), build.operand(4))))
    return build.Conv(*inputs, **{key: build.get(key) for key in _CONVOLVED})


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
    made = build.Conv(*operands, **{key: build.get(key) for key in _CONVOLVED})
    return build.Cast(made, to=proto.INT32)
