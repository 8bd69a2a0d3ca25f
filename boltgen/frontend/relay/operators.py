"""Relay's operators by their neutral names, and their attributes as the shared passes read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, relay, tir

from boltgen.frontend.imported import TensorType
from boltgen.frontend.relay.versions import integers

Attributes = dict[str, object]


class UnknownFormError(ValueError):
    """An operator with attributes or operands that the neutral graph has no name for."""


def dtype_of(type_: object) -> str:
    """The dtype of a tensor type, "" where it has none."""
    return str(type_.dtype) if isinstance(type_, ir.TensorType) else ""


def shape_of(type_: object) -> tuple[int | str, ...] | None:
    """The shape of a tensor type, "?" for a dynamic dimension; None where it is no tensor's."""
    if not isinstance(type_, ir.TensorType):
        return None
    return tuple(
        int(extent)
        if isinstance(extent, (int, tir.IntImm))
        else ("?" if isinstance(extent, tir.Any) else str(extent))
        for extent in type_.shape
    )


def tensor_type(type_: object) -> TensorType:
    """Shape and dtype of a type."""
    return shape_of(type_), dtype_of(type_)


def extents(expr: relay.Expr) -> tuple[int | str, ...]:
    """The shape of a tensor."""
    return shape_of(expr.checked_type) or ()


def _sides(padding: object) -> tuple[int, ...]:
    """(top, left, bottom, right) of a padding that names one, two or four sides."""
    sides = integers(padding)
    return sides * (4 // len(sides))


def _pair(values: object) -> tuple[int, ...]:
    found = integers(values)
    return found * (2 // len(found))


def _conv2d(call: relay.Call) -> Attributes:
    attrs = call.attrs
    layout = str(attrs.kernel_layout)
    if layout == "HWOI" and extents(call.args[1])[3] != 1:
        layout = "HWCM"  # several filters for each channel: the third extent has no filters
    return {
        "strides": _pair(attrs.strides),
        "padding": _sides(attrs.padding),
        "dilation": _pair(attrs.dilation),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": layout,
        "out_layout": str(attrs.out_layout) or str(attrs.data_layout),
    }


def _pool(call: relay.Call) -> Attributes:
    attrs = call.attrs
    include = "count_include_pad" in attrs.keys() and bool(attrs.count_include_pad)  # noqa: SIM118
    return {
        "pool_size": integers(attrs.pool_size),
        "strides": integers(attrs.strides),
        "padding": _sides(attrs.padding),
        "dilation": integers(attrs.dilation),
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": include,
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _adaptive(call: relay.Call) -> Attributes:
    attrs = call.attrs
    is_global = call.op.name == "nn.global_avg_pool2d"
    return {
        "output_size": (1, 1) if is_global else integers(attrs.output_size),
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _reduction(call: relay.Call) -> Attributes:
    attrs = call.attrs
    rank = len(extents(call.args[0]))
    axes = None if attrs.axis is None else tuple(axis % rank for axis in integers(attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(axis for axis in range(rank) if axis not in (axes or ()))
    return {"axis": axes, "keepdims": bool(attrs.keepdims)}


def _variance(call: relay.Call) -> Attributes:
    if bool(call.attrs.unbiased) or not _is_mean_of(call.args[1], call.args[0]):
        raise UnknownFormError
    return _reduction(call)


def _is_mean_of(expr: relay.Expr, x: relay.Expr) -> bool:
    is_mean = isinstance(expr, relay.Call) and expr.op == ir.Op.get("mean")
    return is_mean and bool(expr.args[0].same_as(x))


def _axis(call: relay.Call) -> Attributes:
    axis = call.attrs.axis
    return {"axis": None if axis is None else int(axis)}


def _take(call: relay.Call) -> Attributes:
    """TVM clips an index below 0 to 0, where others count from the end."""
    indices = call.args[1]
    counts_back = isinstance(indices, relay.Constant) and bool((indices.data.numpy() < 0).any())
    if int(call.attrs.batch_dims) != 0 or counts_back:
        raise UnknownFormError
    return _axis(call)


def _resize2d(call: relay.Call) -> Attributes:
    attrs = call.attrs
    return {
        "size": integers(attrs.size),
        "roi": None if attrs.roi is None else tuple(float(edge) for edge in attrs.roi),
        "layout": str(attrs.layout),
        "method": str(attrs.method),
        "coordinate_transformation_mode": str(attrs.coordinate_transformation_mode),
        "rounding_method": str(attrs.rounding_method),
        "cubic_alpha": float(attrs.cubic_alpha),
        "cubic_exclude": int(attrs.cubic_exclude),
        "extrapolation_value": float(attrs.extrapolation_value),
        "out_dtype": str(attrs.out_dtype or ""),
    }


def _batch_norm(call: relay.Call) -> Attributes:
    attrs = call.attrs
    return {
        "axis": int(attrs.axis),
        "epsilon": float(attrs.epsilon),
        "center": bool(attrs.center),
        "scale": bool(attrs.scale),
        "training": False,
    }


def _pad(call: relay.Call) -> Attributes:
    value = call.args[1]
    if not isinstance(value, relay.Constant):
        raise UnknownFormError  # it is not known before the model runs
    return {
        "widths": tuple((int(before), int(after)) for before, after in call.attrs.pad_width),
        "value": float(value.data.numpy().reshape(())),
        "mode": str(call.attrs.pad_mode),
    }


def _transpose(call: relay.Call) -> Attributes:
    rank, axes = len(extents(call.args[0])), call.attrs.axes
    back = tuple(reversed(range(rank)))
    return {"axes": back if axes is None else tuple(int(axis) % rank for axis in axes)}


def _layout_transform(call: relay.Call) -> Attributes:
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        raise UnknownFormError
    return {"axes": tuple(source.index(letter) for letter in target)}


def _bounds(call: relay.Call) -> Attributes:
    return {"low": float(call.attrs.a_min), "high": float(call.attrs.a_max)}


_ATTRIBUTES: Mapping[str, Callable[[relay.Call], Attributes]] = {
    "nn.conv2d": _conv2d,
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    **dict.fromkeys(("nn.adaptive_avg_pool2d", "nn.global_avg_pool2d"), _adaptive),
    **dict.fromkeys(("mean", "sum", "max", "min"), _reduction),
    "variance": _variance,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "concatenate", "stack"), _axis),
    **dict.fromkeys(("nn.prelu", "nn.bias_add"), _axis),
    "take": _take,
    "image.resize2d": _resize2d,
    "nn.batch_norm": _batch_norm,
    "nn.pad": _pad,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "nn.leaky_relu": lambda call: {"alpha": float(call.attrs.alpha)},
    "clip": _bounds,
    "cast": lambda call: {"from_dtype": dtype_of(call.args[0].checked_type)},
}

# Relay's names of operators that the neutral graph calls otherwise.
_NAMES = {
    "transpose": "permute_dims",
    "layout_transform": "permute_dims",
    "cast": "astype",
    "nn.leaky_relu": "nn.leakyrelu",
    "concatenate": "concat",
    "nn.global_avg_pool2d": "nn.adaptive_avg_pool2d",
    "reverse": "flip",
    **dict.fromkeys(("nn.batch_flatten", "squeeze", "expand_dims"), "reshape"),
}


def neutral(name: str, call: relay.Call) -> tuple[str, Attributes]:
    """The neutral name and attributes of a call of the operator that Relay calls `name`.

    Raises:
        UnknownFormError: there is no such name.
    """
    attrs = _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
    if name == "nn.bias_add" and attrs["axis"] in {-1, len(extents(call)) - 1}:
        return "add", {}
    return _NAMES.get(name, name), attrs
