"""Write reductions of torch.export programs that TVM 0.27's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from boltgen.frontend.torch.types import Converter


def _reduced(reduce: Callable[..., relax.Expr]) -> Converter:
    """`amax` and its kin: (x, axes, keepdim); without axes they reduce all."""

    def convert(node: Any, importer: Any) -> relax.Var:
        return importer.block_builder.emit(_extreme(node, importer, reduce))

    return convert


def _extreme(node: Any, importer: Any, reduce: Callable[..., relax.Expr]) -> relax.Expr:
    """The greatest or the least, which TVM lacks for booleans."""
    x, *rest = importer.retrieve_args(node)
    axes, keepdims = _axes(node, rest), _keeps(node, rest)
    if str(x.ty.dtype) != "bool":
        return reduce(x, axes, keepdims=keepdims)
    return relax.op.astype(reduce(relax.op.astype(x, "int8"), axes, keepdims=keepdims), "bool")


def _any(node: Any, importer: Any) -> relax.Var:
    """`any`: (x, axes, keepdim); TVM's own operator returns the greatest number."""
    x, *rest = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    truths = x if str(x.ty.dtype) == "bool" else emit(relax.op.astype(x, "bool"))
    most = relax.op.max(
        relax.op.astype(truths, "int8"), _axes(node, rest), keepdims=_keeps(node, rest)
    )
    return emit(relax.op.astype(most, "bool"))


def _axes(node: Any, rest: Sequence[Any]) -> list[int] | None:
    axes = rest[0] if rest else node.kwargs.get("dim")
    axes = [axes] if isinstance(axes, int) else list(axes or [])
    return axes or None


def _keeps(node: Any, rest: Sequence[Any]) -> bool:
    return bool(rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False))


def _accumulated(accumulate: Callable[..., relax.Expr]) -> Converter:
    """`cumsum` and its kin, (x, axis), in the type of their result: int64 for booleans. TVM's own
    operator keeps booleans, and counts no further than one.
    """

    def convert(node: Any, importer: Any) -> relax.Var:
        x, *rest = importer.retrieve_args(node)
        axis = rest[0] if rest else node.kwargs.get("dim")
        dtype = importer._convert_data_type(str(node.meta["val"].dtype), importer.env)
        wide = x if str(x.ty.dtype) == dtype else relax.op.astype(x, dtype)
        given = {"keepdims": _keeps(node, rest)} if accumulate is relax.op.prod else {}
        return importer.block_builder.emit(accumulate(wide, axis, **given))

    return convert


def _least_along(node: Any, importer: Any) -> relax.Var:
    """`min.dim`: (x, axis, keepdim), the least of an axis and its first place."""
    x, *rest = importer.retrieve_args(node)
    emit, axis, keepdims = importer.block_builder.emit, rest[0], _keeps(node, rest)
    least = emit(relax.op.min(x, axis, keepdims=keepdims))
    return emit(relax.Tuple([least, emit(relax.op.argmin(x, axis, keepdims))]))


def _variance(node: Any, importer: Any) -> relax.Var:
    """`var.correction`: (x, axes), divided by the count of numbers less the correction."""
    x, *rest = importer.retrieve_args(node)
    return _variance_of(x, rest, node, importer)


def _variance_of(x: Any, rest: Sequence[Any], node: Any, importer: Any) -> relax.Var:
    emit, axes = importer.block_builder.emit, _axes(node, rest)
    dtype = str(x.ty.dtype)
    variance = emit(relax.op.variance(x, axes, keepdims=node.kwargs.get("keepdim", False)))
    correction = node.kwargs.get("correction")
    correction = 1 if correction is None else correction
    if correction == 0:
        return variance
    shape = importer.shape_of(x)
    count: Any = 1
    for axis in range(len(shape)) if axes is None else axes:
        count = count * shape[axis]
    if isinstance(count, int | tvm.tirx.IntImm):
        left = int(count) - correction
        scale = relax.const(int(count) / left if left > 0 else float("nan"), dtype)
    else:
        counted = importer._prim_value_to_scalar_tensor(count, "float32")
        scale = relax.op.divide(
            counted, relax.op.subtract(counted, relax.const(float(correction), "float32"))
        )
        scale = emit(relax.op.astype(scale, dtype))
    return emit(relax.op.multiply(variance, scale))


def _deviation(node: Any, importer: Any) -> relax.Var:
    return importer.block_builder.emit(relax.op.sqrt(_variance(node, importer)))


def _variance_and_mean(node: Any, importer: Any) -> relax.Var:
    """`var_mean.correction`: (x, axes), the variance and the mean; FP16 is computed in FP32."""
    x, *rest = importer.retrieve_args(node)
    emit, keepdims = importer.block_builder.emit, node.kwargs.get("keepdim", False)
    is_half = str(x.ty.dtype) == "float16"
    wide = emit(relax.op.astype(x, "float32")) if is_half else x
    mean = emit(relax.op.mean(wide, _axes(node, rest), keepdims=keepdims))
    both = [_variance_of(wide, rest, node, importer), mean]
    narrow = [emit(relax.op.astype(each, "float16")) for each in both] if is_half else both
    return emit(relax.Tuple(narrow))


CONVERTERS: Mapping[str, Converter] = {
    "amax.default": _reduced(relax.op.max),
    "amin.default": _reduced(relax.op.min),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
    "cumsum.default": _accumulated(relax.op.cumsum),
    "cumprod.default": _accumulated(relax.op.cumprod),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _accumulated(relax.op.prod)),
    "min.dim": _least_along,
    "var.correction": _variance,
    "std.correction": _deviation,
    "var_mean.correction": _variance_and_mean,
}
