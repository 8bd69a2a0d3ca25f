"""Operators' attributes in both IRs, by their names in the neutral graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Attributes: TypeAlias = dict[str, object]
_Reader: TypeAlias = Callable[[Any], object]


def integers(values: Any) -> tuple[int, ...]:
    """An attribute of one or several integers.

    They are TVM's own until 0.17; from 0.18 on a container gives Python's. Source:
    apache/tvm#16183, which #17257 brought back.
    """
    if hasattr(values, "__int__"):
        return (int(values),)
    return tuple(int(value) for value in values)


def _repeated(count: int) -> _Reader:
    """Reads `count` integers of fewer: (top, left, bottom, right) of two, say."""

    def read(values: Any) -> tuple[int, ...]:
        found = integers(values)
        return found * (count // len(found))

    return read


def _optional(read: _Reader) -> _Reader:
    return lambda value: None if value is None else read(value)


def _edges(values: Any) -> tuple[float, ...]:
    return tuple(float(getattr(edge, "value", edge)) for edge in values)


_LAYOUTS: Mapping[str, _Reader] = {"layout": str, "out_layout": str}
_WINDOW: Mapping[str, _Reader] = {
    "strides": _repeated(2),
    "padding": _repeated(4),
    "dilation": _repeated(2),
}
_POOL: Mapping[str, _Reader] = {
    "pool_size": integers,
    **_WINDOW,
    "ceil_mode": bool,
    **_LAYOUTS,
}
_AXIS: Mapping[str, _Reader] = {"axis": _optional(int)}
_REDUCTION: Mapping[str, _Reader] = {"axis": _optional(integers), "keepdims": bool}
_LAYOUTS_OF_CONVOLUTIONS: Mapping[str, _Reader] = {
    "groups": int,
    "data_layout": str,
    "kernel_layout": str,
    "out_layout": str,
}
_READERS: Mapping[str, Mapping[str, _Reader]] = {
    "nn.conv1d": {
        "strides": _repeated(1),
        "padding": _repeated(2),
        "dilation": _repeated(1),
        **_LAYOUTS_OF_CONVOLUTIONS,
    },
    "nn.conv2d": {
        **_WINDOW,
        **_LAYOUTS_OF_CONVOLUTIONS,
    },
    "nn.max_pool2d": _POOL,
    "nn.avg_pool2d": {**_POOL, "count_include_pad": bool},
    "nn.adaptive_avg_pool2d": _LAYOUTS,
    **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), _REDUCTION),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "concat", "stack", "dequantize"), _AXIS),
    "gather_elements": _AXIS,
    "take": {**_AXIS, "mode": str},
    "cumsum": {**_AXIS, "exclusive": bool},
    **dict.fromkeys(("nn.prelu", "nn.bias_add"), _AXIS),
    "split": {"axis": int},
    "nn.batch_norm": {"axis": int, "epsilon": float, "center": bool, "scale": bool},
    "nn.leakyrelu": {"alpha": float},
    "image.resize2d": {
        "roi": _optional(_edges),
        "layout": str,
        "method": str,
        "coordinate_transformation_mode": str,
        "rounding_method": str,
        "cubic_alpha": float,
        "cubic_exclude": int,
        "extrapolation_value": float,
        "out_dtype": lambda dtype: str(dtype or ""),
    },
}


def shared_attributes(name: str, attrs: Any) -> Attributes:
    """The attributes that the operator of the neutral `name` has in both IRs."""
    found = {key: read(getattr(attrs, key)) for key, read in _READERS.get(name, {}).items()}
    if name in {"nn.conv1d", "nn.conv2d"}:
        found["out_layout"] = found["out_layout"] or found["data_layout"]
    return found
