"""Elementwise operators that TVM's converters take in a form that splits models, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from boltgen.frontend.onnx.fold import MOST_SMALL
from boltgen.frontend.onnx.rewrites.registry import UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand

INTEGERS = "iu"


@rewrites("Clip", why="bounds that bind nothing are left out, and one at 0 is a Relu")
def clip(node: Any, build: Builder) -> bool:
    """Drop constant bounds that are infinite or NaN; a lower bound of 0 alone is a Relu."""
    given = [operand(node, 1), operand(node, 2)]
    dtype = build.scope.dtype(node.input[0])
    for other in [build.scope.dtype(name) for name in given if name]:
        if dtype is not None and other not in {None, dtype}:
            raise UnsupportedError(
                f"it clips {dtype} to bounds of type {other}", "export it with bounds of one type"
            )
    low, high = (_bound(build, name, sign) for name, sign in zip(given, (-1, 1), strict=True))
    x, out = node.input[0], node.output[0]
    if not low and not high:
        build.rename(x, out)
    elif not high and dtype is not None and dtype.kind == "f" and _is_zero(build, low):
        build("Relu", [x], out=out)
    elif [low, high] != given:
        build("Clip", [x, low, high], out=out)
    else:
        return False
    return True


def _bound(build: Builder, name: str, sign: int) -> str:
    """A bound's name, or "" where it binds nothing: ONNX Runtime takes NaN for no bound."""
    value = build.scope.constant(name) if name else None
    if value is None or value.dtype.kind != "f" or value.size != 1:
        return name
    number = float(value.reshape(()))
    return "" if np.isnan(number) or number == sign * np.inf else name


def _is_zero(build: Builder, name: str) -> bool:
    value = build.scope.constant(name)
    return value is not None and bool((value == 0).all())


@rewrites(
    "Clip", why="TVM's converter takes one bound for the other where one is left out", only="relay"
)
def both_bounds(node: Any, build: Builder) -> bool:
    """Give a bound that is left out the most extreme number of its type."""
    dtype = build.scope.dtype(node.input[0])
    bounds = [operand(node, 1), operand(node, 2)]
    if all(bounds) or dtype is None or dtype.kind not in "fiu":
        return False
    range_ = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low, high = (
        name or build.constant(extreme, dtype)
        for name, extreme in zip(bounds, (range_.min, range_.max), strict=True)
    )
    build("Clip", [node.input[0], low, high], out=node.output[0])
    return True


@rewrites("Clip", why="TVM's converter takes bounds that cross in another order", only="relay")
def crossed_bounds(node: Any, build: Builder) -> bool:
    """Write a Clip whose lower bound is above the upper one as ONNX defines it: Max, then Min."""
    names = [operand(node, 1), operand(node, 2)]
    low, high = (build.scope.constant(name) if name else None for name in names)
    if low is None or high is None or not (low > high).any():
        return False
    build("Min", [build("Max", [node.input[0], names[0]]), names[1]], out=node.output[0])
    return True


@rewrites("Sum", "Mean", why="it is written as additions of two operands each")
def sum_(node: Any, build: Builder) -> bool:
    """Write a sum of several tensors as additions, which become part of kernels."""
    names = list(node.input)
    dtype = build.scope.dtype(names[0])
    if dtype is None:
        return False
    is_mean = node.op_type == "Mean" and len(names) > 1
    total = names[0]
    for place, name in enumerate(names[1:], 2):
        is_last = place == len(names) and not is_mean
        total = build("Add", [total, name], out=node.output[0] if is_last else "")
    if is_mean:
        build("Div", [total, build.constant(len(names), dtype)], out=node.output[0])
    elif len(names) == 1:
        build.rename(total, node.output[0])
    return True


@rewrites("Pow", why="its exponent is converted to the type of its base")
def power(node: Any, build: Builder) -> bool:
    """Compute a power of integers, or of mixed types, in one floating-point type."""
    base, exponent = (build.scope.dtype(name) for name in node.input)
    if base is None or exponent is None or (base == exponent and base.kind == "f"):
        return False
    wide = np.dtype(np.float64) if base.kind in INTEGERS else base
    operands = [
        name if dtype == wide else build("Cast", [name], to=_code(build, wide))
        for name, dtype in zip(node.input, (base, exponent), strict=True)
    ]
    out = node.output[0]
    result = build("Pow", operands, out=out if wide == base else "")
    if wide != base:
        build("Cast", [result], out=out, to=_code(build, base))
    return True


def _code(build: Builder, dtype: np.dtype[Any]) -> int:
    code: int = build.scope.onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return code


@rewrites("Bernoulli")
def random(node: Any, build: Builder) -> bool:
    """Refuse random numbers: those of ONNX Runtime are others."""
    raise UnsupportedError("it draws random numbers", "export the model without it")


@rewrites("ReverseSequence", only="relay")
def batch_first(node: Any, build: Builder) -> bool:
    """Refuse a batch before time, which TVM's converter to Relay reverses wrongly."""
    if attribute(node, "batch_axis", 1) == 0:
        raise UnsupportedError("its batch is its first axis", "transpose its operand before it")
    return False


@rewrites("BitShift")
def bit_shift(node: Any, build: Builder) -> bool:
    """Refuse amounts that processors do not shift by: TVM's results are theirs."""
    dtype, amounts = build.scope.dtype(node.input[0]), build.scope.constant(node.input[1])
    if dtype is None or (amounts is None and dtype.kind == "u"):
        return False
    bits = 8 * dtype.itemsize
    if amounts is None or (amounts < 0).any() or (amounts >= bits).any():
        raise UnsupportedError(
            f"it shifts {dtype} by what may be negative, or {bits} and more",
            "clip the amounts in the model, and make them constants",
        )
    return False


@rewrites(
    *("MatMul", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Gemm"),
)
def reduced_nothing(node: Any, build: Builder) -> bool:
    """Refuse results over no elements: TVM leaves them undefined."""
    nothing = {0, *build.scope.zeros}
    extents = build.scope.extents(node.input[0]) or ()
    if nothing.isdisjoint(extents):
        return False
    build.scope.infer(node)
    if nothing.isdisjoint(build.scope.extents(node.output[0]) or ()):
        raise UnsupportedError(
            f"it reduces an extent of 0, its operand has the shape {extents}",
            "give the inputs shapes without 0, with --shape where the file has 0 for an open one",
        )
    return False


@rewrites("IsInf", why="TVM's converter does not tell positive from negative infinity")
def is_infinite(node: Any, build: Builder) -> bool:
    """Tell one sign of infinity by comparing with zero."""
    dtype = build.scope.dtype(node.input[0])
    signs = [attribute(node, f"detect_{name}", 1) for name in ("negative", "positive")]
    if all(signs) or dtype is None:
        return False
    either = build("IsInf", [node.input[0]])
    comparison = "Greater" if signs[1] else "Less"
    zero = build.constant(0, dtype)
    side = build(comparison, [node.input[0], zero])
    if not any(signs):
        build("And", [build("Not", [either]), either], out=node.output[0])
    else:
        build("And", [either, side], out=node.output[0])
    return True


@rewrites("OneHot", why="TVM's converter needs its values at compile time")
def one_hot(node: Any, build: Builder) -> bool:
    """Compare indices with the numbers below `depth`."""
    extents, depth = build.scope.extents(node.input[0]), build.scope.constant(node.input[1])
    if extents is None or depth is None or not 0 < int(depth.reshape(-1)[0]) <= MOST_SMALL:
        return False
    count, rank = int(depth.reshape(-1)[0]), len(extents)
    axis = attribute(node, "axis", -1) % (rank + 1)
    int64 = build.scope.onnx.TensorProto.INT64
    indices = build("Cast", [node.input[0]], to=int64)
    # An index from -depth on counts from the end; any other that is out of range is no class.
    past = build("Add", [indices, build.constant(count)])
    negative = build("Less", [indices, build.constant(0)])
    wrapped = build("Where", [negative, past, indices])
    wide = build("Unsqueeze", [wrapped, build.constant([axis])])
    classes = np.arange(count).reshape([count] + [1] * (rank - axis))
    chosen = build("Equal", [wide, build.constant(classes)])
    off, on = (build("Gather", [node.input[2], build.constant(place)]) for place in (0, 1))
    build("Where", [chosen, on, off], out=node.output[0])
    return True


@rewrites("EyeLike", why="it is a constant")
def eye(node: Any, build: Builder) -> bool:
    """Write the unit matrix of a known shape."""
    shape, known = build.scope.shape(node.input[0]), build.scope.dtype(node.input[0])
    if shape is None or known is None or shape[0] * shape[1] > MOST_SMALL:
        return False
    code = attribute(node, "dtype")
    dtype = build.scope.onnx.helper.tensor_dtype_to_np_dtype(code) if code else known
    matrix = np.eye(shape[0], shape[1], k=attribute(node, "k", 0))
    build.rename(build.constant(matrix, dtype), node.output[0])
    return True


@rewrites("Celu", why="it is written as an Elu")
def celu(node: Any, build: Builder) -> bool:
    """max(0, x) + min(0, a (exp(x / a) - 1)), which is a Elu(x / a)."""
    dtype = build.scope.dtype(node.input[0])
    if dtype is None:
        return False
    scale = build.constant(attribute(node, "alpha", 1.0), dtype)
    inner = build("Elu", [build("Div", [node.input[0], scale])], alpha=1.0)
    build("Mul", [inner, scale], out=node.output[0])
    return True


@rewrites("ArgMax", "ArgMin", why="its axis is counted from the front")
def arg_extreme(node: Any, build: Builder) -> bool:
    """Count a negative axis from the front: converters of old operator sets do not."""
    extents, axis = build.scope.extents(node.input[0]), attribute(node, "axis", 0)
    if axis >= 0 or extents is None:
        return False
    build.again(node.input, axis=axis + len(extents))
    return True


@rewrites("ReduceMax", "ReduceMin", why="booleans are compared as numbers")
def reduced_booleans(node: Any, build: Builder) -> bool:
    """Reduce booleans as 8-bit numbers."""
    if build.scope.dtype(node.input[0]) != np.bool_:
        return False
    proto = build.scope.onnx.TensorProto
    numbers = build("Cast", [node.input[0]], to=proto.UINT8)
    kept = {key: attribute(node, key) for key in ("axes", "keepdims", "noop_with_empty_axes")}
    small = build(node.op_type, [numbers, *node.input[1:]], **kept)
    build("Cast", [small], out=node.output[0], to=proto.BOOL)
    return True


@rewrites(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
    why="its axes are written as an attribute",
    only="relay",
)
def axes_attribute(node: Any, build: Builder) -> bool:
    """Write axes that are a constant input as an attribute, as before operator set 18."""
    name = operand(node, 1)
    axes = build.scope.constant(name) if name else None
    if len(node.input) < 2 or (name and axes is None):
        return False
    keep = attribute(node, "keepdims", 1)
    if axes is not None and axes.size:
        numbers = [int(axis) for axis in axes]
        build(node.op_type, [node.input[0]], out=node.output[0], axes=numbers, keepdims=keep)
    elif attribute(node, "noop_with_empty_axes", 0):
        build.rename(node.input[0], node.output[0])
    else:
        build(node.op_type, [node.input[0]], out=node.output[0], keepdims=keep)
    return True
