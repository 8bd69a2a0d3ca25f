"""The NumPy semantics of the operators of the neutral graph: a table of functions by name.

An operator computes in FP32, or in FP64 on FP64, and its result is rounded once, to its own type.
So FP16 and BF16 are types in which results are stored, and no sum is kept in them. Constant folding
and the interpreter both read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from boltgen.errors import InterpretError
from boltgen.graph.graph import CORNER, GROUPED, HALF, IMAGE_NORM, NORMED, UNPACK, Array
from boltgen.graph.windows import adaptive_mean, convolution, mean_pool, most_pool
from boltgen.ir.dtypes import DType
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.pair import halves, run_of

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator without operands: its name, its attributes, and its result's shape and dtype."""

    name: str
    attrs: Mapping[str, object]
    shape: tuple[int, ...]
    dtype: str

    def integer(self, key: str) -> int:
        """The attribute `key`, which is one integer."""
        return cast("int", self.attrs[key])

    def integers(self, key: str) -> tuple[int, ...]:
        """The attribute `key`, which is several integers."""
        return tuple(cast("Sequence[int]", self.attrs[key]))

    def number(self, key: str) -> float:
        """The attribute `key`, which is a number."""
        return float(cast("float", self.attrs[key]))


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
            f"the interpreter has no operator {name!r}; add it to boltgen/graph/semantics.py"
        )
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(function(operation, *operands))
            dtype = numpy_dtype(operation.dtype)
            is_same_kind = _kind(str(made.dtype)) == _kind(operation.dtype)
            if made.shape == operation.shape and is_same_kind:
                return made.astype(dtype, copy=False)
    except (ValueError, IndexError, TypeError, KeyError) as error:
        shapes = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
        raise InterpretError(
            f"{name} on ({shapes}) with {dict(operation.attrs)}: {error}"
        ) from error
    raise InterpretError(
        f"{name} makes {made.dtype} {made.shape}, and its graph says {operation.dtype} "
        f"{operation.shape}; the pass that wrote the operator gave it a wrong type"
    )


def is_float(dtype: str) -> bool:
    """Return whether elements of `dtype` are floating-point numbers."""
    return dtype in _FLOATS


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return NumPy's own form of a dtype's name.

    Raises:
        InterpretError: NumPy has no such type.
    """
    try:
        return DType.BF16.numpy if dtype == DType.BF16.value else np.dtype(dtype)
    except TypeError as error:
        raise InterpretError(f"NumPy has no arrays of {dtype!r}") from error


def _kind(dtype: str) -> str:
    return "f" if is_float(dtype) else {"u": "i"}.get(np.dtype(dtype).kind, np.dtype(dtype).kind)


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if str(array.dtype) in _NARROW else array


def _wide(op: Operation) -> str:
    """The dtype in which an operator's sums are kept."""
    return "float32" if op.dtype in _NARROW else op.dtype


def _axes(op: Operation, rank: int) -> tuple[int, ...]:
    """The attribute `axis`, which names one axis, several or, by None, all."""
    given = op.attrs["axis"]
    axes = range(rank) if given is None else [given] if isinstance(given, int) else given
    return tuple(axis % rank for axis in cast("Sequence[int]", axes))


def _axis(op: Operation, rank: int) -> int:
    (axis,) = _axes(op, rank)
    return axis


# --- Operators that move elements and compute none.


def _permuted(op: Operation, x: Array) -> Array:
    axes = cast("Sequence[int] | None", op.attrs["axes"])
    return np.asarray(x.transpose(axes))


def _sliced(op: Operation, x: Array) -> Array:
    """A slice along one axis, one of `every` so many, or one of open extents `within` a tensor."""
    places = [slice(None)] * x.ndim
    if "every" in op.attrs:
        axis, begin, step = op.integers("every")
        places[axis] = slice(begin, None, step)
    elif "within" in op.attrs:
        for axis, begin in cast("Sequence[tuple[int, int]]", op.attrs["within"]):
            places[axis] = slice(begin, begin + op.shape[axis])
    else:
        places[op.integer("axis")] = slice(op.integer("begin"), op.integer("end"))
    return x[tuple(places)]


def _corner(op: Operation, x: Array) -> Array:
    return x[tuple(slice(extent) for extent in op.shape)]


def _scattered(op: Operation, x: Array, part: Array) -> Array:
    """`x` with `part` in the place of a slice of it."""
    axis, *span = (op.integer(key) for key in ("axis", "begin", "end", "step"))
    made: Array = x.copy()
    made[(slice(None),) * (axis % x.ndim) + (slice(*span),)] = part
    return made


def _taken(op: Operation, x: Array, indices: Array) -> Array:
    """Return elements at indices; the mode decides about indices beyond the tensor."""
    axis, mode = cast("int | None", op.attrs.get("axis")), str(op.attrs.get("mode", "fast"))
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
    axis = _axis(op, x.ndim)
    own = tuple(
        slice(None) if at == axis else slice(extent) for at, extent in enumerate(places.shape)
    )
    return np.take_along_axis(x[own], places, axis)


def _padded(op: Operation, x: Array) -> Array:
    widths = cast("Sequence[tuple[int, int]]", op.attrs["widths"])
    mode = str(op.attrs["mode"])
    kept = (slice(max(0, -before), min(0, after) or None) for before, after in widths)
    x, widths = x[tuple(kept)], [(max(0, before), max(0, after)) for before, after in widths]
    if mode == "constant":
        return np.pad(x, widths, constant_values=op.number("value"))
    return np.pad(x, widths, mode=cast("Any", {"replicate": "edge"}.get(mode, mode)))


def _tiled(op: Operation, x: Array) -> Array:
    before = (1,) * (len(op.shape) - x.ndim) + x.shape
    return np.tile(x, [new // old for new, old in zip(op.shape, before, strict=True)])


def _unpacked(op: Operation, x: Array) -> Array:
    form = op.attrs["weights"]
    assert isinstance(form, PackedWeights)
    return form.unpacked(x, op.integer("k"))


def _half(op: Operation, x: Array) -> Array:
    both: Array = halves(x, run_of(op.shape[-1]))
    return np.asarray(both[op.integer("index")])


def _counted(op: Operation) -> Array:
    numbers = op.integer("begin") + op.integer("step") * np.arange(op.shape[0])
    return numbers.astype(op.dtype)


_MOVES: Mapping[str, _Function] = {
    **dict.fromkeys(
        ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"),
        lambda op, x: x.reshape(op.shape),
    ),
    "permute_dims": _permuted,
    "broadcast_to": lambda op, x: np.broadcast_to(x, op.shape),
    "strided_slice": _sliced,
    "slice_scatter": _scattered,
    CORNER: _corner,
    "take": _taken,
    "gather_elements": _gathered,
    "index_tensor": lambda op, x, *indices: x[indices],
    "flip": lambda op, x: np.flip(x, _axis(op, x.ndim)),
    "concat": lambda op, *parts: np.concatenate(parts, _axis(op, parts[0].ndim)),
    "stack": lambda op, *parts: np.stack(parts, cast("int", op.attrs["axis"]) or 0),
    "repeat": lambda op, x: np.repeat(x, op.integer("repeats"), _axis(op, x.ndim)),
    "tile": _tiled,
    "nn.pad": _padded,
    "full_like": lambda op, x, value: np.full(x.shape, value, x.dtype),
    "triu": lambda op, x: np.triu(x, op.integer("k")),
    "tril": lambda op, x: np.tril(x, op.integer("k")),
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
    return row.value(x, *(op.number(name) for name in row.parameters))


def _softplus(op: Operation, x: Array) -> Array:
    beta = op.number("beta")
    return UnaryOp.SOFTPLUS.function.value(x * beta) / beta


def _divided(op: Operation, x: Array, y: Array) -> Array:
    """Return a quotient; integers are rounded towards zero."""
    quotient = np.true_divide(x, y)
    return quotient if is_float(op.dtype) else np.trunc(quotient).astype(op.dtype)


def _remainder(op: Operation, x: Array, y: Array) -> Array:
    """The remainder of integers that are not negative: the sign has two conventions."""
    del op
    if x.dtype.kind not in "iu" or x.min(initial=0) < 0 or y.min(initial=1) < 1:
        raise ValueError("a remainder of negative numbers, for which there are two conventions")
    return np.asarray(x % y)


def _along(op: Operation, vector: Array, rank: int) -> Array:
    """One number for each place along the attribute `axis`, or a single number."""
    shape = [1] * rank
    if vector.size > 1:
        shape[_axis(op, rank)] = -1
    return vector.reshape(shape)


def _dequantised(op: Operation, x: Array, scale: Array, zero: Array) -> Array:
    scale, zero = (_along(op, each, x.ndim).astype(_wide(op)) for each in (scale, zero))
    return (x.astype(_wide(op)) - zero) * scale


def _reduced(op: Operation, x: Array) -> Array:
    name = {"variance": "var"}.get(op.name, op.name)
    axes, keepdims = _axes(op, x.ndim), bool(op.attrs["keepdims"])
    return np.asarray(getattr(np, name)(x, axis=axes, keepdims=keepdims), x.dtype)


def _image_mean(op: Operation, x: Array) -> Array:
    return np.asarray(x.mean((1, 2), keepdims=bool(op.attrs["keepdims"])))


def _summed_up(op: Operation, x: Array) -> Array:
    """The sum of each element and all before it along an axis; `exclusive` leaves out its own."""
    if op.attrs["axis"] is None:
        x = x.reshape(-1)
    axis = 0 if op.attrs["axis"] is None else _axis(op, x.ndim)
    sums = np.cumsum(x, axis, _wide(op))
    if not op.attrs["exclusive"]:
        return sums
    before = np.zeros_like(sums.take([0], axis))
    return np.concatenate([before, sums.take(range(sums.shape[axis] - 1), axis)], axis)


def _softmax(op: Operation, x: Array) -> Array:
    axis = _axis(op, x.ndim)
    shifted = x - x.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    if op.name == "nn.log_softmax":
        return np.asarray(shifted - np.log(total))
    return np.asarray(np.exp(shifted) / total)


def _matmul(op: Operation, x: Array, y: Array) -> Array:
    return np.asarray(np.matmul(x.astype(_wide(op)), y.astype(_wide(op))))


def _grouped(op: Operation, a: Array, b: Array, ends: Array) -> Array:
    """Rows up to each end times the matrix of their group; rows of no group are zero."""
    made, begin = np.zeros(op.shape, _wide(op)), 0
    for group, end in enumerate(ends):
        made[begin:end] = a[begin:end] @ b[group]
        begin = max(begin, int(end))
    return made


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    squares = np.square(centred).mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(squares + x.dtype.type(epsilon)))


def _affine(op: Operation, made: Array, shape: Sequence[int], *given: Array) -> Array:
    """Return a norm's result with its scale and its shift; the operator may lack either."""
    scale, shift = (each.reshape(shape) for each in given)
    made = made * scale if op.attrs.get("scale", True) else made
    return made + shift if op.attrs.get("center", True) else made


def _layer_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    axes = tuple(axis % x.ndim for axis in op.integers("axes"))
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(x.shape)]
    return _affine(op, _normalised(x, axes, op.number("epsilon")), shape, scale, shift)


def _rms_norm(op: Operation, x: Array, scale: Array) -> Array:
    axes = tuple(axis % x.ndim for axis in op.integers("axes"))
    squares = np.square(x).mean(axes, keepdims=True)
    return np.asarray(x / np.sqrt(squares + x.dtype.type(op.number("epsilon"))) * scale)


def _of_groups(op: Operation, x: Array) -> Array:
    """Normalise each image's groups of channels."""
    axis, groups = op.integer("channel_axis") % x.ndim, op.integer("groups")
    first = np.moveaxis(x, axis, 1)
    apart = first.reshape(first.shape[0], groups, -1)
    made = _normalised(apart, (2,), op.number("epsilon")).reshape(first.shape)
    return np.moveaxis(made, 1, axis)


def _group_norm(op: Operation, x: Array, scale: Array, shift: Array) -> Array:
    axis = op.integer("channel_axis") % x.ndim
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    return _affine(op, _of_groups(op, x), shape, scale, shift)


def _batch_norm(op: Operation, x: Array, *given: Array) -> Array:
    """The norm at inference, by the means and variances that training has found."""
    scale, shift, mean, variance = (_along(op, each, x.ndim) for each in given)
    made = (x - mean) / np.sqrt(variance + x.dtype.type(op.number("epsilon")))
    return _affine(op, made, scale.shape, scale, shift)


def _normed(op: Operation, *arrays: Array) -> Array:
    """A norm of rows by the sums of their elements: see `passes.legalise.norm_of_sums`."""
    roles = cast("Sequence[str]", op.attrs["roles"])
    given = dict(zip(roles, arrays, strict=True))
    value, columns = given["x"], op.integer("columns")
    variance = given["squares"].sum(-1, keepdims=True) / columns
    if "sums" in given:
        mean = given["sums"].sum(-1, keepdims=True) / columns
        variance = np.maximum(variance - mean * mean, 0)
        value = value - mean * given.get("weights", 1)
    value = value / np.sqrt(variance + op.number("epsilon")) * given.get("scale", 1)
    return np.asarray(value + given.get("shift", 0) + given.get("plus", 0))


_ARITHMETIC: Mapping[str, _Function] = {
    **dict.fromkeys(
        (
            *("add", "subtract", "multiply", "maximum", "minimum", "power", "square"),
            *("sin", "cos", "tan", "floor", "ceil", "trunc", "sign"),
            *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
            *("logical_and", "logical_or", "logical_not", "isnan", "isinf", "isfinite"),
            *(
                "bitwise_and",
                "bitwise_or",
                "bitwise_not",
                "floor_divide",
                "right_shift",
                "left_shift",
            ),
        ),
        _of_numpy,
    ),
    **{
        row.function.operator: partial(_of_row, row)
        for row in UnaryOp
        if row.function.operator is not None
    },
    "clip": lambda op, x: np.clip(x, op.number("low"), op.number("high")).astype(x.dtype),
    "nn.relu": lambda op, x: np.maximum(x, x.dtype.type(0)),
    "nn.softplus": _softplus,
    "divide": _divided,
    "mod": _remainder,
    "floor_mod": lambda op, x, y: np.mod(x, y),
    "nn.prelu": lambda op, x, slopes: np.where(x > 0, x, _along(op, slopes, x.ndim) * x),
    "nn.bias_add": lambda op, x, bias: x + _along(op, bias, x.ndim),
    "dequantize": _dequantised,
    **dict.fromkeys(("sum", "mean", "max", "min", "variance", "std", "prod"), _reduced),
    "image_mean": _image_mean,
    "cumsum": _summed_up,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _softmax),
    "matmul": _matmul,
    "einsum": lambda op, *arrays: np.einsum(str(op.attrs["subscripts"]), *arrays),
    GROUPED: _grouped,
    **dict.fromkeys(
        ("nn.conv1d", "nn.conv2d"),
        lambda op, x, weight: convolution(op.attrs, x.astype(_wide(op)), weight.astype(_wide(op))),
    ),
    "nn.max_pool2d": lambda op, x: most_pool(op.attrs, op.shape, x),
    "nn.avg_pool2d": lambda op, x: mean_pool(op.attrs, op.shape, x),
    "nn.adaptive_avg_pool2d": lambda op, x: adaptive_mean(op.attrs, op.shape, x),
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    IMAGE_NORM: _of_groups,
    "nn.batch_norm": _batch_norm,
    NORMED: _normed,
}
OPERATORS = frozenset({*_MOVES, *_ARITHMETIC})
