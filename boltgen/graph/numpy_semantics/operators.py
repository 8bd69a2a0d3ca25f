"""The NumPy semantics of the operators of the neutral graph: a table of functions by name.

An operator computes in FP32, or in FP64 on FP64, and its result is rounded once, to its own type.
So FP16 and BF16 are types in which results are stored, and no sum is kept in them. Constant folding
and the interpreter both read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from boltgen.errors import GraphError, InterpretError
from boltgen.graph.attributes import (
    AdaptivePool,
    Clip,
    Convolution,
    Count,
    Diagonal,
    DynamicSlice,
    Einsum,
    Indexed,
    MeanPool,
    Pad,
    Permutation,
    Pool,
    Reduce,
    Repeat,
    RunningSum,
    Scatter,
    Sharpness,
    Slice,
    SteppedSlice,
    Take,
    TransposedConvolution,
    Unpack,
)
from boltgen.graph.facts import AND, COMPARISONS, NOT, OR
from boltgen.graph.graph import (
    CORNER,
    GROUPED,
    HALF,
    IMAGE_NORM,
    NORMED,
    RECURRENT,
    UNPACK,
    Array,
)
from boltgen.graph.numpy_semantics.norms import (
    batch_norm,
    group_norm,
    layer_norm,
    normed,
    of_groups,
    rms_norm,
)
from boltgen.graph.numpy_semantics.operation import NARROW, Operation, along, is_float, numpy_dtype
from boltgen.graph.numpy_semantics.recurrent import recurrent
from boltgen.graph.numpy_semantics.windows import (
    adaptive_mean,
    convolution,
    mean_pool,
    most_pool,
    transposed,
)
from boltgen.ir.dtypes import FLOAT8, DType
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.pair import halves, run_of

_Function: TypeAlias = Callable[..., Any]


def compute(operation: Operation, arrays: Sequence[Array]) -> Array:
    """Return the result of an operator on `arrays`, rounded to the operator's dtype.

    Raises:
        InterpretError: the operator is unknown, or its operands or attributes do not fit.
    """
    name = operation.name
    if name in _MOVES:
        function, operands = _MOVES[name], list(arrays)
    elif name in _ARITHMETIC:
        function, operands = _ARITHMETIC[name], [_widened(array) for array in arrays]
    else:
        raise InterpretError(
            f"the interpreter has no operator {name!r}; add it to "
            "boltgen/graph/numpy_semantics/operators.py"
        )
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(function(operation, *operands))
            dtype = numpy_dtype(operation.dtype)
            is_same_kind = _kind(str(made.dtype)) == _kind(operation.dtype)
            if made.shape == operation.shape and is_same_kind:
                return made.astype(dtype, copy=False)
    except (ValueError, IndexError, TypeError, KeyError, GraphError) as error:
        shapes = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
        raise InterpretError(
            f"{name} on ({shapes}) with {operation.attrs.named()}: {error}"
        ) from error
    raise InterpretError(
        f"{name} makes {made.dtype} {made.shape}, and its graph says {operation.dtype} "
        f"{operation.shape}; the pass that wrote the operator gave it a wrong type"
    )


def _kind(dtype: str) -> str:
    return "f" if is_float(dtype) else {"u": "i"}.get(np.dtype(dtype).kind, np.dtype(dtype).kind)


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if str(array.dtype) in NARROW else array


# --- Operators that move elements and compute none.


def _permuted(op: Operation, x: Array) -> Array:
    return np.asarray(x.transpose(op.attrs.of(Permutation).axes))


def _sliced(op: Operation, x: Array) -> Array:
    """A slice along one axis, one of `every` so many, or one of open extents `within` a tensor."""
    places = [slice(None)] * x.ndim
    match op.attrs:
        case SteppedSlice((axis, begin, step)):
            places[axis] = slice(begin, None, step)
        case DynamicSlice(within):
            for axis, begin in within:
                places[axis] = slice(begin, begin + op.shape[axis])
        case attrs:
            own = attrs.of(Slice)
            places[own.axis] = slice(own.begin, own.end)
    return x[tuple(places)]


def _corner(op: Operation, x: Array) -> Array:
    return x[tuple(slice(extent) for extent in op.shape)]


def _scattered(op: Operation, x: Array, part: Array) -> Array:
    """`x` with `part` in the place of a slice of it."""
    axis, *span = op.attrs.of(Scatter).named().values()
    made: Array = x.copy()
    made[(slice(None),) * (axis % x.ndim) + (slice(*span),)] = part
    return made


def _taken(op: Operation, x: Array, indices: Array) -> Array:
    """Elements at indices; the mode decides about indices beyond the tensor."""
    attrs = op.attrs.of(Take)
    axis, mode = attrs.axis, attrs.mode
    if mode != "nan":
        return np.take(x, indices, axis, mode=cast("Any", {"fast": "raise"}.get(mode, mode)))
    x, place = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    extent = x.shape[place]
    found = np.take(x, indices, place, mode="clip")
    is_within = (indices >= -extent) & (indices < extent)
    return np.where(is_within.reshape(indices.shape + (1,) * (x.ndim - place - 1)), found, np.nan)


def _gathered(op: Operation, x: Array, places: Array) -> Array:
    """The elements of `x` at places along an axis, elsewhere at a result's own place."""
    if places.min(initial=0) < 0:
        raise ValueError("an index is negative, for which the IRs have no common meaning")
    axis = op.axis(x.ndim)
    own = tuple(
        slice(None) if at == axis else slice(extent) for at, extent in enumerate(places.shape)
    )
    return np.take_along_axis(x[own], places, axis)


def _padded(op: Operation, x: Array) -> Array:
    attrs = op.attrs.of(Pad)
    mode, widths = attrs.mode, attrs.widths
    kept = (slice(max(0, -before), min(0, after) or None) for before, after in widths)
    x, added = x[tuple(kept)], [(max(0, before), max(0, after)) for before, after in widths]
    if mode == "constant":
        return np.pad(x, added, constant_values=attrs.value)
    return np.pad(x, added, mode=cast("Any", {"replicate": "edge"}.get(mode, mode)))


def _tiled(op: Operation, x: Array) -> Array:
    before = (1,) * (len(op.shape) - x.ndim) + x.shape
    return np.tile(x, [new // old for new, old in zip(op.shape, before, strict=True)])


def _unpacked(op: Operation, x: Array) -> Array:
    attrs = op.attrs.of(Unpack)
    return attrs.weights.unpacked(x, attrs.k)


def _half(op: Operation, x: Array) -> Array:
    both: Array = halves(x, run_of(op.shape[-1]))
    return np.asarray(both[op.attrs.of(Indexed).index])


def _counted(op: Operation) -> Array:
    attrs = op.attrs.of(Count)
    return (attrs.begin + attrs.step * np.arange(op.shape[0])).astype(op.dtype)


_MOVES: Mapping[str, _Function] = {
    "reshape": lambda op, x: x.reshape(op.shape),
    "permute_dims": _permuted,
    "broadcast_to": lambda op, x: np.broadcast_to(x, op.shape),
    "strided_slice": _sliced,
    "slice_scatter": _scattered,
    CORNER: _corner,
    "take": _taken,
    "gather_elements": _gathered,
    "index_tensor": lambda op, x, *indices: x[indices],
    "flip": lambda op, x: np.flip(x, op.axis(x.ndim)),
    "concat": lambda op, *parts: np.concatenate(parts, op.axis(parts[0].ndim)),
    "stack": lambda op, *parts: np.stack(parts, op.axis(parts[0].ndim + 1)),
    "repeat": lambda op, x: np.repeat(x, op.attrs.of(Repeat).repeats, op.axis(x.ndim)),
    "tile": _tiled,
    "nn.pad": _padded,
    "full_like": lambda op, x, value: np.full(x.shape, value, x.dtype),
    "triu": lambda op, x: np.triu(x, op.attrs.of(Diagonal).k),
    "tril": lambda op, x: np.tril(x, op.attrs.of(Diagonal).k),
    "where": lambda op, chosen, x, y: np.where(chosen, x, y),
    "astype": lambda op, x: x.astype(numpy_dtype(op.dtype)),
    "arange": _counted,
    UNPACK: _unpacked,
    HALF: _half,
}


# --- Operators that compute elements.


def _of_numpy(op: Operation, *arrays: Array) -> Array:
    return np.asarray(getattr(np, op.name)(*arrays))


def _of_row(function: UnaryOp, op: Operation, x: Array) -> Array:
    """A function of one value, by its row in `ir.functions`."""
    row = function.function
    given = op.attrs.named()
    return row.value(x, *(given[name] for name in row.parameters))


def _softplus(op: Operation, x: Array) -> Array:
    beta = op.attrs.of(Sharpness).beta
    return UnaryOp.SOFTPLUS.function.value(x * beta) / beta


def _divided(op: Operation, x: Array, y: Array) -> Array:
    """A quotient; of integers the one that is rounded towards zero."""
    quotient = np.true_divide(x, y)
    return quotient if is_float(op.dtype) else np.trunc(quotient).astype(op.dtype)


def _remainder(_: Operation, x: Array, y: Array) -> Array:
    """The remainder of integers that are not negative: the sign has two conventions."""
    if x.dtype.kind not in "iu" or x.min(initial=0) < 0 or y.min(initial=1) < 1:
        raise ValueError("a remainder of negative numbers, for which there are two conventions")
    return np.asarray(x % y)


def _dequantised(op: Operation, x: Array, scale: Array, zero: Array) -> Array:
    axis = op.axis(x.ndim)
    scale, zero = (along(axis, each, x.ndim).astype(op.wide) for each in (scale, zero))
    return (x.astype(op.wide) - zero) * scale


def _quantised(op: Operation, x: Array, scale: Array, zero: Array) -> Array:
    """The nearest integers to x / scale, half to even, around the zero point, clamped to the type.

    To a float of 8 bits it is x / scale + zero point, clamped to the type.

    Source: ONNX, QuantizeLinear. A NaN, for which ONNX names no result, becomes the zero point.
    """
    axis = op.axis(x.ndim)
    if op.dtype in FLOAT8:
        most = DType(op.dtype).largest
        scale, zero = (along(axis, each, x.ndim).astype(np.float32) for each in (scale, zero))
        steps = x.astype(np.float32) / scale + zero
        narrow: Array = np.clip(steps, -most, most).astype(DType(op.dtype).numpy)
        return narrow
    ends = np.iinfo(op.dtype)
    scale, zero = (along(axis, each, x.ndim) for each in (scale, zero))
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = np.rint(x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64)
    whole = np.nan_to_num(nearest) + zero.astype(np.float64)
    return np.clip(whole, ends.min, ends.max).astype(op.dtype)


def _reduced(op: Operation, x: Array) -> Array:
    name = {"variance": "var"}.get(op.name, op.name)
    attrs = op.attrs.of(Reduce)
    axes, keepdims = attrs.axes(x.ndim), attrs.keepdims
    return np.asarray(getattr(np, name)(x, axis=axes, keepdims=keepdims), x.dtype)


def _image_mean(op: Operation, x: Array) -> Array:
    return np.asarray(x.mean((1, 2), keepdims=op.attrs.of(Reduce).keepdims))


def _summed_up(op: Operation, x: Array) -> Array:
    """The sum of each element and all before it along an axis; `exclusive` leaves out its own."""
    attrs = op.attrs.of(RunningSum)
    x = x.reshape(-1) if attrs.axis is None else x
    axis = attrs.at(x.ndim)
    sums = np.cumsum(x, axis, op.wide)
    if not attrs.exclusive:
        return sums
    before = np.zeros_like(sums.take([0], axis))
    return np.concatenate([before, sums.take(range(sums.shape[axis] - 1), axis)], axis)


def _softmax(op: Operation, x: Array) -> Array:
    axis = op.axis(x.ndim)
    shifted = x - x.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    if op.name == "nn.log_softmax":
        return np.asarray(shifted - np.log(total))
    return np.asarray(np.exp(shifted) / total)


def _matmul(op: Operation, x: Array, y: Array) -> Array:
    return np.asarray(np.matmul(x.astype(op.wide), y.astype(op.wide)))


def _grouped(op: Operation, a: Array, b: Array, ends: Array) -> Array:
    """Rows up to each end times the matrix of their group; rows of no group are zero."""
    made, begin = np.zeros(op.shape, op.wide), 0
    for group, end in enumerate(ends):
        made[begin:end] = a[begin:end] @ b[group]
        begin = max(begin, int(end))
    return made


_ARITHMETIC: Mapping[str, _Function] = {
    **dict.fromkeys(
        (
            *("add", "subtract", "multiply", "maximum", "minimum", "power", "square"),
            *("sin", "cos", "tan", "floor", "ceil", "trunc", "sign"),
            *("isnan", "isinf", "isfinite", "floor_divide", "right_shift", "left_shift"),
            *(*COMPARISONS, *AND, *OR, *NOT),
        ),
        _of_numpy,
    ),
    **{
        row.function.operator: partial(_of_row, row)
        for row in UnaryOp
        if row.function.operator is not None
    },
    "clip": lambda op, x: np.clip(x, *op.attrs.of(Clip).named().values()).astype(x.dtype),
    "nn.relu": lambda op, x: np.maximum(x, x.dtype.type(0)),
    "nn.softplus": _softplus,
    "divide": _divided,
    "mod": _remainder,
    "floor_mod": lambda op, x, y: np.mod(x, y),
    "nn.prelu": lambda op, x, slopes: np.where(
        x > 0, x, along(op.axis(x.ndim), slopes, x.ndim) * x
    ),
    "nn.bias_add": lambda op, x, bias: x + along(op.axis(x.ndim), bias, x.ndim),
    "quantize": _quantised,
    "dequantize": _dequantised,
    **dict.fromkeys(("sum", "mean", "max", "min", "variance", "std", "prod"), _reduced),
    "image_mean": _image_mean,
    "cumsum": _summed_up,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _softmax),
    "matmul": _matmul,
    "einsum": lambda op, *arrays: np.einsum(op.attrs.of(Einsum).subscripts, *arrays),
    GROUPED: _grouped,
    RECURRENT: recurrent,
    **dict.fromkeys(
        ("nn.conv1d", "nn.conv2d", "nn.conv3d"),
        lambda op, x, weight: convolution(
            op.attrs.of(Convolution), x.astype(op.wide), weight.astype(op.wide)
        ),
    ),
    **dict.fromkeys(
        ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"),
        lambda op, x, weight: transposed(
            op.attrs.of(TransposedConvolution), op.shape, x.astype(op.wide), weight.astype(op.wide)
        ),
    ),
    "nn.max_pool2d": lambda op, x: most_pool(op.attrs.of(Pool), op.shape, x),
    "nn.avg_pool2d": lambda op, x: mean_pool(op.attrs.of(MeanPool), op.shape, x),
    "nn.adaptive_avg_pool2d": lambda op, x: adaptive_mean(op.attrs.of(AdaptivePool), op.shape, x),
    "nn.layer_norm": layer_norm,
    "nn.rms_norm": rms_norm,
    "nn.group_norm": group_norm,
    IMAGE_NORM: of_groups,
    "nn.batch_norm": batch_norm,
    NORMED: normed,
}
OPERATORS = frozenset({*_MOVES, *_ARITHMETIC})
