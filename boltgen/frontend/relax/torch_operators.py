"""Operators of torch.export that TVM 0.27's importer lacks or gets wrong, as it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.relax.grouped import call_of_torch

_Converter = Callable[[Any, Any], Any]


def _reduced(reduce: Callable[..., relax.Expr]) -> _Converter:
    """`amax` and its kin: (x, axes, keepdim), where no axes are all."""

    def convert(node: Any, importer: Any) -> relax.Var:
        x, *rest = importer.retrieve_args(node)
        axes = rest[0] if rest else []
        keepdims = rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False)
        axes = [axes] if isinstance(axes, int) else list(axes)
        return importer.block_builder.emit(reduce(x, axes or None, keepdims=keepdims))

    return convert


def _accumulated(accumulate: Callable[..., relax.Expr]) -> _Converter:
    """`cumsum` and its kin, (x, axis), in the type of their result: of truth values that is int64,
    where TVM's own stays with truth values, and counts no further than one.
    """

    def convert(node: Any, importer: Any) -> relax.Var:
        x, *rest = importer.retrieve_args(node)
        axis = rest[0] if rest else node.kwargs.get("dim")
        more = {"keepdims": rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False)}
        dtype = importer._convert_data_type(str(node.meta["val"].dtype), importer.env)
        wide = x if str(x.ty.dtype) == dtype else relax.op.astype(x, dtype)
        given = more if accumulate is relax.op.prod else {}
        return importer.block_builder.emit(accumulate(wide, axis, **given))

    return convert


def _reflected(node: Any, importer: Any) -> relax.Var:
    """`reflection_padNd`: widths before and after each dimension, the last one's first."""
    x, widths = importer.retrieve_args(node)
    pairs = [list(pair) for pair in zip(widths[::2], widths[1::2], strict=True)]
    rank = len(x.ty.shape.values)
    full = [[0, 0]] * (rank - len(pairs)) + pairs[::-1]
    flat = [width for pair in full for width in pair]
    return importer.block_builder.emit(relax.op.nn.pad(x, flat, "reflect"))


def _normed_by_its_own(node: Any, importer: Any) -> relax.Expr:
    """A batch norm by the statistics of its input, which an instance norm is decomposed to."""
    x, weight, bias, *_, epsilon = importer.retrieve_args(node)
    emit, rank = importer.block_builder.emit, len(x.ty.shape.values)
    dtype = str(x.ty.dtype)
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
    return emit(
        relax.Tuple([normed, relax.op.reshape(mean, (-1,)), relax.op.reshape(scale, (-1,))])
    )


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
    """`elu`: (x, alpha, scale, input_scale), of which TVM's own drops the last two: SELU's."""
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
    """`div.Tensor_mode` of a tensor by one, or by a number, which TVM's own makes an int32."""
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
    """`_grouped_mm`: (a, b, offs, bias), of which the rows of a are in groups that end at offs.

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
    """`slice.Tensor`: (x, axis, begin, end, step) up to an open extent, or of one.

    Where the program says that the end is within x, so does the result's shape. TVM's own shape is
    the lesser of both, which none of its operators can compute with.
    """
    args, defaults = list[Any](node.args), [None, 0, None, None, 1]
    x, axis, begin, end, step = args + defaults[len(args) :]
    begin = 0 if begin is None else begin
    if not isinstance(begin, int) or begin < 0 or step != 1:
        return importer._slice(node)
    axis %= len(node.meta["val"].shape)
    tensor, extent = importer.env[x], node.meta["val"].shape[axis]
    if isinstance(end, int):
        given = end
        is_open = not isinstance(x.meta["val"].shape[axis], int)
        is_within = is_open and isinstance(extent, int) and extent == end - begin
    elif hasattr(end, "meta"):
        given = importer.env[end]
        whole = importer.shape_of(tensor)[axis]
        is_tensor = begin == 0 and tvm_ffi.structural_equal(given, whole)
        is_within = not is_tensor and str(extent) == str(end.meta["val"] - begin)
    else:
        is_within = False
    if not is_within:
        return importer._slice(node)
    cut = relax.op.strided_slice(tensor, [axis], [begin], [given], assume_inbound=True)
    return importer.block_builder.emit(cut)


CONVERTERS: Mapping[str, _Converter] = {
    "amax.default": _reduced(relax.op.max),
    "amin.default": _reduced(relax.op.min),
    "cumsum.default": _accumulated(relax.op.cumsum),
    "cumprod.default": _accumulated(relax.op.cumprod),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _accumulated(relax.op.prod)),
    "div.Tensor_mode": _divided,
    "elu.default": _exponential,
    "native_group_norm.default": _grouped,
    "_grouped_mm.default": _in_groups,
    "slice.Tensor": _cut,
    "_native_batch_norm_legit.no_stats": _normed_by_its_own,
    **dict.fromkeys((f"reflection_pad{n}d.default" for n in (1, 2, 3)), _reflected),
}
