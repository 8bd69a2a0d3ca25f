"""The attributes of Relay's operators, as normalisation names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relay

from boltgen.frontend.relay.translate import (
    NAMES,
    conv2d_attributes,
    four_sided,
    pad_attributes,
    shape_of,
    transpose_axes,
)
from boltgen.frontend.relay.versions import integers

# Relay's names of operators whose rules have another name.
RULE_NAMES = {
    **NAMES,
    "nn.global_avg_pool2d": "nn.adaptive_avg_pool2d",
    "layout_transform": "permute_dims",
}


class UnknownForm(ValueError):  # noqa: N818 (a reason, caught by the walk)
    """An operator with attributes that no rule knows; the operator stays as it is written."""


def _conv2d(call: relay.Call) -> dict[str, Any]:
    attributes = conv2d_attributes(call)
    weight = shape_of(call.args[1].checked_type) or ()
    extents = dict(zip(str(attributes["kernel_layout"]), weight, strict=False))
    if not {"O", "H", "W"} <= extents.keys():
        raise UnknownForm(f"kernel layout {attributes['kernel_layout']}")
    return {
        **attributes,
        "channels": extents["O"],
        "kernel_size": (extents["H"], extents["W"]),
    }


def _pool(call: relay.Call) -> dict[str, Any]:
    attrs = call.attrs
    include = "count_include_pad" in attrs.keys() and bool(attrs.count_include_pad)  # noqa: SIM118
    return {
        "pool_size": integers(attrs.pool_size),
        "strides": integers(attrs.strides),
        "padding": four_sided(attrs.padding),
        "dilation": integers(attrs.dilation),
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": include,
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _adaptive(call: relay.Call) -> dict[str, Any]:
    attrs = call.attrs
    is_global = call.op.name == "nn.global_avg_pool2d"
    return {
        "output_size": (1, 1) if is_global else integers(attrs.output_size),
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _reduction(call: relay.Call) -> dict[str, Any]:
    attrs = call.attrs
    rank = len(shape_of(call.args[0].checked_type) or ())
    axes = None if attrs.axis is None else tuple(axis % rank for axis in integers(attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(axis for axis in range(rank) if axis not in (axes or ()))
    return {"axis": axes, "keepdims": bool(attrs.keepdims)}


def _axis(call: relay.Call) -> dict[str, Any]:
    axis = call.attrs.axis
    return {"axis": None if axis is None else int(axis)}


def _resize2d(call: relay.Call) -> dict[str, Any]:
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


def _batch_norm(call: relay.Call) -> dict[str, Any]:
    attrs = call.attrs
    return {
        "axis": int(attrs.axis),
        "epsilon": float(attrs.epsilon),
        "center": bool(attrs.center),
        "scale": bool(attrs.scale),
        "training": False,
    }


def _pad(call: relay.Call) -> dict[str, Any]:
    attributes = pad_attributes(call)
    if attributes["value"] is None:
        raise UnknownForm("a padding value that is not known before the model runs")
    return attributes


def _permute_dims(call: relay.Call) -> dict[str, Any]:
    if call.op.name == "transpose":
        return {"axes": transpose_axes(call)}
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        raise UnknownForm(f"a layout transform from {source} to {target}")
    return {"axes": tuple(source.index(letter) for letter in target)}


_ATTRIBUTES: Mapping[str, Callable[[relay.Call], dict[str, Any]]] = {
    "nn.conv2d": _conv2d,
    "nn.max_pool2d": _pool,
    "nn.avg_pool2d": _pool,
    "nn.adaptive_avg_pool2d": _adaptive,
    **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), _reduction),
    **dict.fromkeys(
        ("nn.softmax", "nn.log_softmax", "concat", "stack", "nn.bias_add", "nn.prelu", "take"),
        _axis,
    ),
    "image.resize2d": _resize2d,
    "nn.batch_norm": _batch_norm,
    "nn.pad": _pad,
    "permute_dims": _permute_dims,
}


def attributes(name: str, call: relay.Call) -> dict[str, Any]:
    """The attributes that the rule `name` reads of `call`.

    Raises:
        UnknownForm: they are none that the rule knows.
    """
    return _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
