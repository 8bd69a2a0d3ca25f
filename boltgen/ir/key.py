"""Canonical keys: one text, and one hash, for equal frozen values, in every process and version.

A too coarse key silently reuses the wrong kernel, so this module fails closed: a value of a kind
that it does not know is an error, and a field is part of the text by its name.
"""

from __future__ import annotations

import hashlib
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from typing import Any


def canonical(value: object) -> str:
    """Text that is equal exactly where the values are.

    Takes dataclasses, enums, str, int, bool, float, None, tuples and dicts with string keys. A
    dataclass is named as its class, or as its `key_name` says where the class was renamed.

    Raises:
        TypeError: the value, or a part of it, is of another kind.
    """
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, float):
        return value.hex()  # exact, and tells 0.0 from -0.0
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple):
        return "(" + ",".join(canonical(item) for item in value) + ")"
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("canonical: a dict's keys must be strings")
        return "{" + ",".join(f"{k!r}:{canonical(value[k])}" for k in sorted(value)) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "key_name", type(value).__name__)
        parts = [(f.name, getattr(value, f.name)) for f in fields(value) if is_shown(value, f)]
        return f"{name}({','.join(f'{part}={canonical(each)}' for part, each in parts)})"
    raise TypeError(f"canonical: no key for a value of type {type(value).__name__}")


def is_shown(value: object, shown: Field[Any]) -> bool:
    """Whether a field of the dataclass `value` is part of its key and of its records.

    One with the metadata "absent_at_default" is younger than the keys and records that there are:
    it is left out where it has its default, which is what the older ones mean.
    """
    return not (
        shown.metadata.get("absent_at_default") and getattr(value, shown.name) == shown.default
    )


def digest(*values: object) -> str:
    """SHA-256 of the canonical text of all values, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(values).encode()).hexdigest()
