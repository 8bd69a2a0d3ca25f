"""The attributes of Relax's operators, as normalisation names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir

from boltgen.frontend.relax.translate import (
    conv2d_attributes,
    pad_attributes,
    permute_dims_attributes,
)


def _named(*names: str) -> Callable[[ir.Call], dict[str, Any]]:
    """The attributes that have the same names in Relax."""
    return lambda call: {name: getattr(call.attrs, name) for name in names}


def _resize2d(call: ir.Call) -> dict[str, Any]:
    attrs = call.attrs
    return {
        "size": call.args[1],
        "roi": tuple(float(edge.value) for edge in attrs.roi),
        "layout": attrs.layout,
        "method": attrs.method,
        "coordinate_transformation_mode": attrs.coordinate_transformation_mode,
        "rounding_method": attrs.rounding_method,
        "cubic_alpha": attrs.cubic_alpha,
        "cubic_exclude": attrs.cubic_exclude,
        "extrapolation_value": attrs.extrapolation_value,
        "out_dtype": attrs.out_dtype,
    }


_POOL = _named(
    *("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad"),
    *("layout", "out_layout"),
)
_ATTRIBUTES: Mapping[str, Callable[[ir.Call], dict[str, Any]]] = {
    "nn.conv2d": conv2d_attributes,
    "permute_dims": permute_dims_attributes,
    "nn.max_pool2d": _POOL,
    "nn.avg_pool2d": _POOL,
    "nn.adaptive_avg_pool2d": _named("output_size", "layout", "out_layout"),
    **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), _named("axis", "keepdims")),
    **dict.fromkeys(
        ("nn.softmax", "nn.log_softmax", "concat", "stack", "nn.prelu", "take"), _named("axis")
    ),
    "nn.batch_norm": _named("axis", "epsilon", "center", "scale", "training"),
    "nn.pad": pad_attributes,
    "image.resize2d": _resize2d,
}


def attributes(name: str, call: ir.Call) -> dict[str, Any]:
    """The attributes that the rule `name` reads of `call`."""
    return _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
