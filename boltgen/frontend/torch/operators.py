"""Operators of torch.export that TVM 0.27's importer lacks or gets wrong, as it asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.relax.grouped import call_of_torch
from boltgen.frontend.torch.types import Converter, overloads


def _reflected(node: Any, importer: Any) -> relax.Var:
    """`reflection_padNd`: widths before and after each dimension, the last one's first."""
    x, widths = importer.retrieve_args(node)
    pairs = [list(pair) for pair in zip(widths[::2], widths[1::2], strict=True)]
    rank = len(x.ty.shape.values)
    full = [[0, 0]] * (rank - len(pairs)) + pairs[::-1]
    flat = [width for pair in full for width in pair]
    return importer.block_builder.emit(relax.op.nn.pad(x, flat, "reflect"))


def _wide(x: Any) -> str:
    dtype = str(x.ty.dtype)
    return "float32" if dtype == "float16" else dtype


def _normed_by_its_own(node: Any, importer: Any) -> relax.Expr:
    """A batch norm by the statistics of its input: the decomposition of an instance norm.

    It is computed in FP32, as PyTorch does where its input is FP16.
    """
    x, weight, bias, *_, epsilon = importer.retrieve_args(node)
    emit, rank = importer.block_builder.emit, len(x.ty.shape.values)
    own, dtype = str(x.ty.dtype), _wide(x)
    x, weight, bias = (
        each if each is None or str(each.ty.dtype) == dtype else emit(relax.op.astype(each, dtype))
        for each in (x, weight, bias)
    )
    axes = [axis for axis in range(rank) if axis != 1]
    mean = emit(relax.op.mean(x, axes, keepdims=True))
    centred = emit(relax.op.subtract(x, mean))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axes, keepdims=True)
    scale = emit(relax.op.rsqrt(relax.op.add(variance, relax.const(epsilon, dtype))))
    normed = emit(relax.op.multiply(centred, scale))
    along = (-1, *(1,) * (rank - 2))
    if weight is not None:
        normed = emit(relax.op.multiply(normed, relax.op.reshape(weight, along)))
    if bias is not None:
        normed = emit(relax.op.add(normed, relax.op.reshape(bias, along)))
    normed = normed if own == dtype else emit(relax.op.astype(normed, own))
    return emit(
        relax.Tuple([normed, relax.op.reshape(mean, (-1,)), relax.op.reshape(scale, (-1,))])
    )


_PRODUCTS = frozenset(("convolution.default", "addmm.default", "mm.default"))


def _normed_by_learned(node: Any, importer: Any) -> relax.Expr:
    """A batch norm by learned statistics, in FP32 if x is FP16.

    TVM's `batch_norm` of FP16 is typed FP16, and computes FP32. Behind a product of its own it
    stays as it is, and goes into the product's weights.
    """
    x, *learned, _, epsilon = importer.retrieve_args(node)
    if str(x.ty.dtype) != "float16" or _is_of_product(node):
        return importer._batch_norm_legit_no_training(node)
    emit, channels = importer.block_builder.emit, int(importer.shape_of(x)[1])
    wide = [
        relax.const(np.full(channels, missing), "float32")
        if given is None
        else emit(relax.op.astype(given, "float32"))
        for given, missing in zip(learned, (1.0, 0.0, 0.0, 1.0), strict=True)
    ]
    x = emit(relax.op.astype(x, "float32"))
    normed = emit(relax.op.nn.batch_norm(x, *wide, axis=1, epsilon=epsilon, training=False))
    return emit(relax.op.astype(emit(normed[0]), "float16"))


def _is_of_product(node: Any) -> bool:
    """Return whether only this node reads a product, and all that it reads has one type."""
    source = node.args[0]
    values = [each.meta["val"].dtype for each in node.args[:5] if hasattr(each, "meta")]
    while getattr(source.target, "__name__", "") == "_to_copy.default" and len(source.users) == 1:
        source = source.args[0]
    is_product = getattr(source.target, "__name__", "") in _PRODUCTS
    return is_product and len(source.users) == 1 and len(set(values)) == 1


def _grouped(node: Any, importer: Any) -> relax.Expr:
    """`native_group_norm`: (x, weight, bias, N, C, HW, groups, epsilon); weights may be missing."""
    x, weight, bias, _, channels, _, groups, epsilon = importer.retrieve_args(node)
    dtype = str(x.ty.dtype)
    missing = relax.const(np.ones(channels), dtype), relax.const(np.zeros(channels), dtype)
    return importer.block_builder.emit(
        relax.op.nn.group_norm(
            x,
            missing[0] if weight is None else weight,
            missing[1] if bias is None else bias,
            groups,
            channel_axis=1,
            axes=list(range(2, len(x.ty.shape.values))),
            epsilon=epsilon,
            center=bias is not None,
            scale=weight is not None,
        )
    )


def _exponential(node: Any, importer: Any) -> relax.Expr:
    """`elu`: (x, alpha, scale, input_scale); TVM's own operator drops the last two, which SELU
    needs.
    """
    x, *given = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, str(x.ty.dtype)
    alpha, scale, input_scale = (
        relax.const(float(value), dtype) for value in (*given, *(1.0,) * (3 - len(given)))
    )
    scaled = x if len(given) < 3 else emit(relax.op.multiply(x, input_scale))
    lost = relax.op.nn.relu(relax.op.subtract(relax.const(1.0, dtype), relax.op.exp(scaled)))
    made = relax.op.subtract(relax.op.nn.relu(x), relax.op.multiply(alpha, lost))
    return emit(made if len(given) < 2 else relax.op.multiply(made, scale))


def _divided(node: Any, importer: Any) -> relax.Expr:
    """`div.Tensor_mode` of a tensor by a tensor or a number; TVM's own operator makes a number an
    int32.
    """
    x, divisor = importer.retrieve_args(node)
    dtype, emit = str(x.ty.dtype), importer.block_builder.emit
    if not isinstance(divisor, relax.Expr):
        divisor = relax.const(divisor, dtype)
    mode = node.kwargs.get("rounding_mode")
    if mode == "floor":
        return emit(relax.op.floor_divide(x, divisor))
    quotient = emit(relax.op.divide(x, divisor))
    return quotient if mode is None else emit(relax.op.trunc(quotient))


def _in_groups(node: Any, importer: Any) -> relax.Expr:
    """`_grouped_mm`: (a, b, offs, bias); the rows of a are in groups that end at offs.

    Raises:
        ModelImportError: another dimension is in groups, or none is.
    """
    a, b, ends, bias = (*importer.retrieve_args(node), None, None)[:4]
    shapes = len(a.ty.shape.values), len(b.ty.shape.values)
    if shapes != (2, 3) or ends is None or bias is not None or node.kwargs.get("bias") is not None:
        raise ModelImportError(
            f"{node.name!r} of the torch.export program multiplies tensors of {shapes[0]} and "
            f"{shapes[1]} dimensions in groups: boltgen multiplies rows, (M, K), that are in "
            "groups, with a matrix for each group, (groups, K, N), and adds no bias there; write a "
            "batched product with torch.bmm, and add a bias behind it"
        )
    return importer.block_builder.emit(call_of_torch(a, b, ends, str(a.ty.dtype)))


def _cut(node: Any, importer: Any) -> relax.Expr:
    """`slice.Tensor`: (x, axis, begin, end, step) with a dynamic extent or a dynamic end.

    If the program says that the end is within x, the result's shape uses the end. TVM's own shape
    is the minimum of end and extent, and its operators cannot compute with it.
    """
    args, defaults = list[Any](node.args), [None, 0, None, None, 1]
    x, axis, begin, end, step = args + defaults[len(args) :]
    begin = 0 if begin is None else begin
    axis %= len(node.meta["val"].shape)
    tensor, before = importer.env[x], x.meta["val"].shape[axis]
    extent = node.meta["val"].shape[axis]
    emit, whole = importer.block_builder.emit, importer.shape_of(tensor)[axis]
    if not isinstance(begin, int) or not isinstance(step, int):
        return importer._slice(node)
    if not isinstance(before, int) and (end is None or _is_beyond(end)):
        # TVM's minimum of this end and a formula leaves int64.
        if begin < 0:
            first, is_within = whole + begin, str(extent) == str(-begin)
        else:
            first, is_within = begin, begin == 0 or str(extent) == str(before - begin)
        if not is_within or (step != 1 and begin != 0):
            return importer._slice(node)
        cut = relax.op.strided_slice(tensor, [axis], [first], [whole], [step], assume_inbound=True)
        return emit(cut)
    if begin < 0 or step != 1:
        return importer._slice(node)
    if isinstance(end, int):
        is_open = not isinstance(before, int)
        given, last = (whole + end, before + end) if is_open and end < 0 else (end, end)
        is_known = isinstance(extent, int) or end < 0
        is_within = is_open and is_known and str(extent) == str(last - begin)
    elif hasattr(end, "meta"):
        given = importer.env[end]
        is_tensor = begin == 0 and tvm_ffi.structural_equal(given, whole)
        is_within = not is_tensor and str(extent) == str(end.meta["val"] - begin)
    else:
        is_within = False
    if not is_within:
        return importer._slice(node)
    return emit(relax.op.strided_slice(tensor, [axis], [begin], [given], assume_inbound=True))


def _is_beyond(end: Any) -> bool:
    """Whether an end is PyTorch's number for the end of a dimension."""
    return isinstance(end, int) and end >= 2**62


def _bounded(node: Any, importer: Any) -> relax.Expr:
    """`clamp` and its kin, (x, least, greatest): numbers, tensors or None.

    TVM's own bounds are floats, which integers are not compared with, and in their order; where the
    least is above the greatest, PyTorch's result is the greatest.
    """
    x, *bounds = importer.retrieve_args(node)
    given = importer._retrieve_args(dict(node.kwargs))
    if "clamp_max" in node.target.__name__:
        bounds = [None, *bounds]
    least, greatest = (
        bounds[place] if place < len(bounds) else given.get(name)
        for place, name in enumerate(("min", "max"))
    )
    emit, dtype = importer.block_builder.emit, str(x.ty.dtype)
    is_plain = all(bound is None or isinstance(bound, int | float) for bound in (least, greatest))
    if dtype.startswith("float") and is_plain:
        high = math.inf if greatest is None else greatest
        return emit(relax.op.clip(x, -math.inf if least is None else min(least, high), high))
    for bound, choose in ((least, relax.op.maximum), (greatest, relax.op.minimum)):
        if bound is not None:
            x = emit(choose(x, importer._convert_scalar_fill_value(bound, dtype)))
    return x


def _number(node: Any, importer: Any) -> relax.Expr:
    """`scalar_tensor` of a number, or of an integer that is computed from dynamic extents."""
    (number,) = importer.retrieve_args(node)
    dtype = importer._convert_data_type(str(node.meta["val"].dtype), importer.env)
    return importer.block_builder.emit(importer._convert_scalar_fill_value(number, dtype))


_SHIFTS_LEFT, _SHIFTS_RIGHT = (
    overloads((f"__{side}shift__ bitwise_{word}_shift", "Tensor Scalar Tensor_Scalar"))
    for side, word in (("l", "left"), ("r", "right"))
)
_CLAMPS = overloads(("clamp clamp_min clamp_max", "default Tensor"))


def _convolved(node: Any, importer: Any) -> relax.Expr:
    """`convolution`: TVM's own, and transposed convolutions in three dimensions."""
    x, weight, bias, stride, padding, dilation, is_transposed, extra, groups = (
        importer.retrieve_args(node)
    )
    if not is_transposed or len(x.ty.shape.values) != 5:
        return importer._convolution(node)
    emit = importer.block_builder.emit
    made = emit(
        relax.op.nn.conv3d_transpose(
            x,
            weight,
            strides=list(stride),
            padding=list(padding),
            output_padding=list(extra),
            dilation=list(dilation),
            groups=groups,
            data_layout="NCDHW",
            kernel_layout="IODHW",
            out_dtype="float32",
        )
    )
    if bias is None:
        return made
    return emit(relax.op.add(made, relax.op.reshape(bias, (1, -1, 1, 1, 1))))


def _shifted(shift: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        x, bits = importer.retrieve_args(node)
        by = importer._convert_scalar_fill_value(bits, str(x.ty.dtype))
        return importer.block_builder.emit(shift(x, by))

    return convert


_REDUCED = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scattered(node: Any, importer: Any) -> relax.Expr:
    """`scatter_add` and `scatter_reduce`: (x, axis, index, source, name).

    Raises:
        ModelImportError: the mean is wanted, or what is in x is not to be reduced with.
    """
    x, axis, index, source, *rest = importer.retrieve_args(node)
    name = rest[0] if rest else "sum"
    is_with_own = rest[1] if len(rest) > 1 else node.kwargs.get("include_self", True)
    if name not in _REDUCED or not is_with_own:
        raise ModelImportError(
            f"{node.name!r} of the torch.export program is scatter_reduce of {name!r} with "
            f"include_self={is_with_own}: boltgen has sum, prod, amax and amin with "
            "include_self=True; begin with a tensor of what leaves them as they are, and divide "
            "sums by counts for means"
        )
    return _scatter(importer, x, axis, index, source, _REDUCED[name])


def _scatter_source(node: Any, importer: Any) -> relax.Expr:
    """`scatter.src`: (x, axis, index, source); the source may be larger than the index."""
    x, axis, index, source = importer.retrieve_args(node)
    return _scatter(importer, x, axis, index, source, "update")


def _scatter(  # noqa: PLR0917
    importer: Any, x: Any, axis: int, index: Any, source: Any, reduction: str
) -> relax.Expr:
    emit = importer.block_builder.emit
    extents, given = (list(importer.shape_of(each)) for each in (index, source))
    larger = [
        place
        for place, (extent, own) in enumerate(zip(extents, given, strict=True))
        if not tvm_ffi.structural_equal(extent, own)
    ]
    if larger:
        ends = [extents[place] for place in larger]
        begins = [0] * len(larger)
        source = emit(relax.op.strided_slice(source, larger, begins, ends, assume_inbound=True))
    return emit(relax.op.scatter_elements(x, index, source, axis, reduction))


def _viewed(node: Any, importer: Any) -> relax.Expr:
    """`as_strided`: (x, shape, strides), if the elements lie in order.

    Raises:
        ModelImportError: x does not, whose numbers TVM's importer would take in another order.
    """
    if not node.args[0].meta["val"].is_contiguous():
        raise ModelImportError(
            f"{node.name!r} of the torch.export program is as_strided of a tensor that does not "
            "lie in order: make it .contiguous() before, or write the view with reshape, "
            "transpose and unfold"
        )
    return importer._as_strided(node)


def _polynomial(x: Any, coefficients: Sequence[float], dtype: str) -> relax.Expr:
    """The polynomial of `x` whose coefficients begin with the highest power's."""
    first, *others = (relax.const(each, dtype) for each in coefficients)
    value: relax.Expr = first
    for each in others:
        value = relax.op.add(relax.op.multiply(value, x), each)
    return value


def _log1p(node: Any, importer: Any) -> relax.Expr:
    """log(1 + x); from -0.5 to 1 by the series of 2 artanh(s) with s = x / (2 + x).

    1 + x drops the digits of a small x, and the logarithm of a GPU has an absolute error around 1.
    For an exponential it stays log(1 + exp(x)), the softplus that passes know.
    """
    (x,) = importer.retrieve_args(node)
    dtype = _wide(x)
    one, two = relax.const(1.0, dtype), relax.const(2.0, dtype)
    wide = relax.op.astype(x, dtype)
    result = relax.op.log(relax.op.add(wide, one))
    if getattr(node.args[0].target, "__name__", "") != "exp.default":
        s = relax.op.divide(wide, relax.op.add(wide, two))
        # |s| is at most 1/3: the first term left out is below 2^-31 of the first.
        series = _polynomial(relax.op.multiply(s, s), [2 / k for k in range(17, 0, -2)], dtype)
        has_digits = relax.op.logical_or(
            relax.op.greater(wide, one), relax.op.less(wide, relax.const(-0.5, dtype))
        )
        result = relax.op.where(has_digits, result, relax.op.multiply(s, series))
    return importer.block_builder.emit(relax.op.astype(result, str(x.ty.dtype)))


def _expm1(node: Any, importer: Any) -> relax.Expr:
    """exp(x) - 1; from -0.5 to 0.5 by its series, since the difference cancels there."""
    (x,) = importer.retrieve_args(node)
    dtype = _wide(x)
    wide = relax.op.astype(x, dtype)
    difference = relax.op.subtract(relax.op.exp(wide), relax.const(1.0, dtype))
    # The first term left out, x^11 / 11!, is below 2^-34 of x.
    series = _polynomial(wide, [1 / math.factorial(k) for k in range(10, 0, -1)], dtype)
    is_large = relax.op.greater(relax.op.abs(wide), relax.const(0.5, dtype))
    result = relax.op.where(is_large, difference, relax.op.multiply(wide, series))
    return importer.block_builder.emit(relax.op.astype(result, str(x.ty.dtype)))


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_CLAMPS, _bounded),
    "convolution.default": _convolved,
    "div.Tensor_mode": _divided,
    "expm1.default": _expm1,
    "log1p.default": _log1p,
    "elu.default": _exponential,
    "native_group_norm.default": _grouped,
    "scalar_tensor.default": _number,
    **dict.fromkeys(_SHIFTS_LEFT, _shifted(relax.op.left_shift)),
    **dict.fromkeys(_SHIFTS_RIGHT, _shifted(relax.op.right_shift)),
    "as_strided.default": _viewed,
    **dict.fromkeys(("scatter_add.default", "scatter_reduce.two"), _scattered),
    "scatter.src": _scatter_source,
    "_grouped_mm.default": _in_groups,
    "slice.Tensor": _cut,
    "_native_batch_norm_legit_no_training.default": _normed_by_learned,
    "_native_batch_norm_legit.no_stats": _normed_by_its_own,
    **dict.fromkeys((f"reflection_pad{n}d.default" for n in (1, 2, 3)), _reflected),
}
