"""Read TVM's attributes of an operator into the operator's record: they have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from boltgen.graph.attributes import KINDS, Attributes

_Record = TypeVar("_Record", bound=Attributes)


def integers(values: Any) -> tuple[int, ...]:
    """An attribute of one or several integers.

    They are TVM's own until 0.17; from 0.18 on a container gives Python's. Source:
    apache/tvm#16183, which #17257 brought back.
    """
    if hasattr(values, "__int__"):
        return (int(values),)
    return tuple(int(value) for value in values)


def _optional(read: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else read(value)


def _edges(values: Any) -> tuple[float, ...]:
    return tuple(float(getattr(edge, "value", edge)) for edge in values)


# By the field's type in the record.
_READERS: Mapping[str, Callable[[Any], object]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": lambda value: str(value or ""),
    "int | None": _optional(int),
    "tuple[int, ...]": integers,
    "tuple[int, ...] | None": _optional(integers),
    "tuple[float, ...] | None": _optional(_edges),
}


def read(name: str, attrs: Any, **own: object) -> Attributes:
    """Return the attributes of the operator of the neutral `name`.

    `own` has fields that are no attributes of TVM's, or that TVM has in another way.
    """
    found = dict(own)
    kind = KINDS.get(name, (Attributes,))[-1]
    for field in fields(kind):
        if field.name not in own and (field.default is MISSING or hasattr(attrs, field.name)):
            found[field.name] = _READERS[str(field.type)](getattr(attrs, field.name))
    pixels = next((axes for axes in (1, 3) if f"{axes}d" in name), 2)
    for key, count in (
        ("strides", pixels),
        ("dilation", pixels),
        ("output_padding", pixels),
        ("pool_size", pixels),
        ("padding", 2 * pixels),
    ):
        if isinstance(given := found.get(key), tuple):  # one integer may stand for all
            found[key] = given * (count // len(given))
    if "kernel_layout" in found:
        found["out_layout"] = found["out_layout"] or found["data_layout"]
    return kind(**found)
