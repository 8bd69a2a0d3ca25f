"""Relay's operators by their neutral names, and their attributes as the shared passes read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import ir, relay, tir

from boltgen.frontend.attributes import integers, read
from boltgen.frontend.imported import TensorType
from boltgen.graph.attributes import NONE, Attributes, Axis

# Fields that Relay has as arguments, under other names or in its own way.
_Fields: TypeAlias = "dict[str, object]"


class UnknownFormError(ValueError):
    """An operator with attributes or operands that the neutral graph has no name for."""


def dtype_of(type_: object) -> str:
    """The dtype of a tensor type, "" where it has none."""
    return str(type_.dtype) if isinstance(type_, ir.TensorType) else ""


def shape_of(type_: object) -> tuple[int | str, ...] | None:
    """Return the shape of a tensor type, "?" for a dynamic dimension; None for other types."""
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


def _conv2d(call: relay.Call) -> _Fields:
    if call.attrs.kernel_layout == "HWOI" and extents(call.args[1])[3] != 1:
        return {"kernel_layout": "HWCM"}  # several filters for each channel: O has no filters
    return {}


def _adaptive(call: relay.Call) -> _Fields:
    is_global = call.op.name == "nn.global_avg_pool2d"
    return {"output_size": (1, 1) if is_global else integers(call.attrs.output_size)}


def _reduction(call: relay.Call) -> _Fields:
    attrs, rank = call.attrs, len(extents(call.args[0]))
    axes = None if attrs.axis is None else tuple(axis % rank for axis in integers(attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(axis for axis in range(rank) if axis not in (axes or ()))
    return {"axis": axes}


def _variance(call: relay.Call) -> _Fields:
    if bool(call.attrs.unbiased) or not _is_mean_of(call.args[1], call.args[0]):
        raise UnknownFormError
    return _reduction(call)


def _is_mean_of(expr: relay.Expr, x: relay.Expr) -> bool:
    is_mean = isinstance(expr, relay.Call) and expr.op == ir.Op.get("mean")
    return is_mean and bool(expr.args[0].same_as(x))


def _take(call: relay.Call) -> _Fields:
    """Check a take's indices: TVM clips a negative one to 0, others count from the end."""
    indices = call.args[1]
    counts_back = isinstance(indices, relay.Constant) and bool((indices.data.numpy() < 0).any())
    if int(call.attrs.batch_dims) != 0 or counts_back:
        raise UnknownFormError
    return {}


def _pad(call: relay.Call) -> _Fields:
    value = call.args[1]
    if not isinstance(value, relay.Constant):
        raise UnknownFormError  # it is not known before the model runs
    return {
        "widths": tuple((int(before), int(after)) for before, after in call.attrs.pad_width),
        "value": float(value.data.numpy().reshape(())),
        "mode": str(call.attrs.pad_mode),
    }


def _transpose(call: relay.Call) -> _Fields:
    rank, axes = len(extents(call.args[0])), call.attrs.axes
    back = tuple(reversed(range(rank)))
    return {"axes": back if axes is None else tuple(int(axis) % rank for axis in axes)}


def _layout_transform(call: relay.Call) -> _Fields:
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        raise UnknownFormError
    return {"axes": tuple(source.index(letter) for letter in target)}


def _norm(call: relay.Call) -> _Fields:
    return {"axes": (int(call.attrs.axis),)}


def _group_norm(call: relay.Call) -> _Fields:
    """Return the fields of a group norm; in an instance norm each channel is a group."""
    attrs, shape = call.attrs, extents(call.args[0])
    axis = int(attrs.axis) % len(shape)
    is_instance = call.op.name == "nn.instance_norm"
    groups = shape[axis] if is_instance else int(attrs.num_groups)
    if not isinstance(groups, int):
        raise UnknownFormError
    others = tuple(each for each in range(1, len(shape)) if each != axis)
    return {"axes": others, "groups": groups, "channel_axis": axis}


_FIELDS: Mapping[str, Callable[[relay.Call], _Fields]] = {
    "nn.conv2d": _conv2d,
    **dict.fromkeys(("nn.adaptive_avg_pool2d", "nn.global_avg_pool2d"), _adaptive),
    **dict.fromkeys(("mean", "sum", "max", "min", "prod"), _reduction),
    "variance": _variance,
    "take": _take,
    "image.resize2d": lambda call: {"size": integers(call.attrs.size)},
    "nn.layer_norm": _norm,
    **dict.fromkeys(("nn.group_norm", "nn.instance_norm"), _group_norm),
    "nn.pad": _pad,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "einsum": lambda call: {"subscripts": str(call.attrs.equation)},
    "clip": lambda call: {"low": float(call.attrs.a_min), "high": float(call.attrs.a_max)},
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
    "nn.instance_norm": "nn.group_norm",
    **dict.fromkeys(("nn.batch_flatten", "squeeze", "expand_dims"), "reshape"),
}


def neutral(name: str, call: relay.Call) -> tuple[str, Attributes]:
    """The neutral name and attributes of a call of the operator that Relay calls `name`.

    Raises:
        UnknownFormError: there is no such name.
    """
    known = _NAMES.get(name, name)
    attrs = read(known, call.attrs, **_FIELDS[name](call) if name in _FIELDS else {})
    last = {-1, len(extents(call)) - 1} if name == "nn.bias_add" else ()
    return ("add", NONE) if isinstance(attrs, Axis) and attrs.axis in last else (known, attrs)
