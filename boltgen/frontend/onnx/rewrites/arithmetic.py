"""Elementwise operators that TVM's converters take in a form that splits models, or not at all."""

from __future__ import annotations

import numpy as np

from boltgen.frontend.onnx.fold import MOST_SMALL
from boltgen.frontend.onnx.rewrites.registry import (
    Builder,
    UnknownError,
    UnsupportedError,
    rewrites,
)


@rewrites("Clip", why="bounds that bind nothing are left out, and one at 0 is a Relu")
def clip(build: Builder) -> str | None:
    """Drop constant bounds that are infinite or NaN; a lower bound of 0 alone is a Relu."""
    given = [build.operand(1), build.operand(2)]
    dtype = build.scope.dtype(build.x)
    for other in [build.scope.dtype(name) for name in given if name]:
        if dtype is not None and other not in {None, dtype}:
            raise UnsupportedError(
                f"it clips {dtype} to bounds of type {other}", "export it with bounds of one type"
            )
    low, high = (_bound(build, place) for place in (1, 2))
    if not low and not high:
        return build.x
    zero = build.known(1)
    if not high and dtype is not None and dtype.kind == "f" and zero is not None and not zero.any():
        return build.Relu(build.x)
    return build.Clip(build.x, low, high) if [low, high] != given else None


def _bound(build: Builder, place: int) -> str:
    """A bound's name, or "" where it binds nothing: ONNX Runtime takes NaN for no bound."""
    value = build.known(place)
    if value is None or value.dtype.kind != "f" or value.size != 1:
        return build.operand(place)
    binds_nothing = np.isnan(value) | (value == (-np.inf if place == 1 else np.inf))
    return "" if binds_nothing.all() else build.operand(place)


@rewrites(
    "Clip", why="TVM's converter takes one bound for the other where one is left out", only="relay"
)
def both_bounds(build: Builder) -> str | None:
    """Write floats with one bound as Max or Min; give integers the most extreme number of theirs.

    An infinity is beyond every finite number that could be such a bound.
    """
    dtype, bounds = build.dtype(), [build.operand(1), build.operand(2)]
    if all(bounds) or dtype.kind not in "fiu":
        return None
    if dtype.kind == "f":
        return build.Max(build.x, bounds[0]) if bounds[0] else build.Min(build.x, bounds[1])
    range_ = np.iinfo(dtype)
    ends = (dtype.type(range_.min), dtype.type(range_.max))
    return build.Clip(build.x, *(name or end for name, end in zip(bounds, ends, strict=True)))


@rewrites("Clip", why="TVM's converter takes bounds that cross in another order", only="relay")
def crossed_bounds(build: Builder) -> str | None:
    """Write a Clip whose lower bound is above the upper one as ONNX defines it: Max, then Min."""
    low, high = build.known(1), build.known(2)
    if low is None or high is None or not (low > high).any():
        return None
    return build.Min(build.Max(build.x, build.operand(1)), build.operand(2))


@rewrites("Sum", "Mean", why="it is written as additions of two operands each")
def sum_(build: Builder) -> str:
    """Write a sum of several tensors as additions, which become part of kernels."""
    total, *others = build.node.input
    number = build.dtype().type(len(others) + 1)
    for name in others:
        total = build.Add(total, name)
    return build.Div(total, number) if others and build.node.op_type == "Mean" else total


@rewrites("Pow", why="its exponent is converted to the type of its base")
def power(build: Builder) -> str | None:
    """Compute a power of integers, or of mixed types, in one floating-point type."""
    base, exponent = build.dtype(0), build.dtype(1)
    if base == exponent and base.kind == "f":
        return None
    code = build.scope.onnx.helper.np_dtype_to_tensor_dtype
    wide = np.dtype(np.float64) if base.kind in "iu" else base
    operands = [
        name if dtype == wide else build.Cast(name, to=code(wide))
        for name, dtype in zip(build.node.input, (base, exponent), strict=True)
    ]
    result = build.Pow(*operands)
    return result if wide == base else build.Cast(result, to=code(base))


@rewrites("Bernoulli")
def random(build: Builder) -> None:
    """Refuse random numbers: ONNX Runtime's generator gives others."""
    raise UnsupportedError("it draws random numbers", "export the model without it")


@rewrites("ReverseSequence", only="relay")
def batch_first(build: Builder) -> None:
    """Refuse a batch before time, which TVM's converter to Relay reverses wrongly."""
    if build.get("batch_axis", 1) == 0:
        raise UnsupportedError("its batch is its first axis", "transpose its operand before it")


@rewrites("BitShift")
def bit_shift(build: Builder) -> None:
    """Refuse amounts that processors do not shift by: TVM's results are theirs."""
    dtype, amounts = build.dtype(), build.known(1)
    bits = 8 * dtype.itemsize
    if amounts is None and dtype.kind == "u":
        return
    if amounts is None or (amounts < 0).any() or (amounts >= bits).any():
        raise UnsupportedError(
            f"it shifts {dtype} by what may be negative, or {bits} and more",
            "clip the amounts in the model, and make them constants",
        )


@rewrites(
    *("MatMul", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Gemm"),
)
def reduced_nothing(build: Builder) -> None:
    """Refuse results over no elements: TVM leaves them undefined."""
    nothing, extents = {0, *build.scope.zeros}, build.extents()
    if nothing.isdisjoint(extents):
        return
    build.scope.infer(build.node)
    if nothing.isdisjoint(build.scope.extents(build.node.output[0]) or ()):
        raise UnsupportedError(
            f"it reduces an extent of 0, its operand has the shape {extents}",
            "give the inputs shapes without 0, with --shape where the file has 0 for an open one",
        )


@rewrites("Sign", why="TVM's sign of NaN is 0, and ONNX's is NaN")
def sign(build: Builder) -> str | None:
    """Return NaN for NaN."""
    if build.dtype().kind != "f":
        return None
    return build.Where(build.IsNaN(build.x), build.x, build.Sign(build.x))


@rewrites("ThresholdedRelu", why="TVM's converter multiplies by 0, which makes NaN of -inf")
def thresholded(build: Builder) -> str:
    """Choose between the operand and zero."""
    dtype = build.dtype().type
    is_above = build.Greater(build.x, dtype(build.get("alpha", 1.0)))
    return build.Where(is_above, build.x, dtype(0))


@rewrites("IsInf", why="TVM's converter does not tell positive from negative infinity")
def is_infinite(build: Builder) -> str | None:
    """Tell one sign of infinity by comparing with zero."""
    signs = [build.get(f"detect_{name}", 1) for name in ("negative", "positive")]
    if all(signs):
        return None
    either, zero = build.IsInf(build.x), build.dtype().type(0)
    if not any(signs):
        return build.And(build.Not(either), either)
    return build.And(either, (build.Greater if signs[1] else build.Less)(build.x, zero))


@rewrites("OneHot", why="TVM's converter needs its values at compile time")
def one_hot(build: Builder) -> str | None:
    """Compare indices with the numbers below `depth`."""
    depth, rank = build.known(1), len(build.extents())
    if depth is None or not 0 < int(depth.reshape(-1)[0]) <= MOST_SMALL:
        return None
    count, axis = int(depth.reshape(-1)[0]), build.get("axis", -1) % (rank + 1)
    indices = build.Cast(build.x, to=build.scope.onnx.TensorProto.INT64)
    # An index from -depth on counts from the end; any other that is out of range is no class.
    wrapped = build.Where(build.Less(indices, 0), build.Add(indices, count), indices)
    classes = np.arange(count).reshape([count] + [1] * (rank - axis))
    chosen = build.Equal(build.Unsqueeze(wrapped, [axis]), classes)
    off, on = (build.Gather(build.operand(2), place) for place in (0, 1))
    return build.Where(chosen, on, off)


@rewrites("EyeLike", why="it is a constant")
def eye(build: Builder) -> str | None:
    """Write the unit matrix of a known shape."""
    (rows, columns), code = build.shape(), build.get("dtype")
    if rows * columns > MOST_SMALL:
        return None
    dtype = build.scope.onnx.helper.tensor_dtype_to_np_dtype(code) if code else build.dtype()
    return build.constant(np.eye(rows, columns, k=build.get("k", 0), dtype=dtype))


@rewrites("ArgMax", "ArgMin", why="its axis is counted from the front")
def arg_extreme(build: Builder) -> list[str] | None:
    """Count a negative axis from the front: converters of old operator sets do not."""
    axis = build.get("axis", 0)
    return build.again(axis=axis + len(build.extents())) if axis < 0 else None


@rewrites("ReduceMax", "ReduceMin", why="booleans are compared as numbers")
def reduced_booleans(build: Builder) -> str | None:
    """Reduce booleans as 8-bit numbers."""
    if build.dtype() != np.bool_:
        return None
    proto = build.scope.onnx.TensorProto
    operands = [build.Cast(build.x, to=proto.UINT8), *build.node.input[1:]]
    kept = {key: build.get(key) for key in ("axes", "keepdims", "noop_with_empty_axes")}
    (small,) = build.many(build.node.op_type, operands, 1, **kept)
    return build.Cast(small, to=proto.BOOL)


@rewrites(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
    why="its axes are written as an attribute",
    only="relay",
)
def axes_attribute(build: Builder) -> str | list[str] | None:
    """Write axes that are a constant input as an attribute, as before operator set 18."""
    if len(build.node.input) < 2:
        return None
    axes = build.known(1)
    if axes is None and build.operand(1):
        raise UnknownError
    is_given = axes is not None and axes.size > 0
    if not is_given and build.get("noop_with_empty_axes", 0):
        return build.x
    numbers = [int(axis) for axis in axes] if axes is not None and is_given else None
    keep = build.get("keepdims", 1)
    return build.again([build.x], axes=numbers, keepdims=keep, noop_with_empty_axes=None)
