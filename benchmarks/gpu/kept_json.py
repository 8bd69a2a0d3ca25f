"""JSON that is kept beside its module: by name, and each record on a line of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def kept_json(form: Mapping[str, Any], depth: int = 0) -> str:
    """The text of a form: mappings by name, in whatever depth, and in them lists of records."""
    pairs = (f'"{name}": {_value(value, depth + 1)}' for name, value in sorted(form.items()))
    return _lines("{", pairs, "}", depth)


def _value(value: Mapping[str, Any] | Sequence[Any], depth: int) -> str:
    if isinstance(value, Mapping):
        return kept_json(value, depth)
    rows = (json.dumps(row, separators=(",", ":")) for row in value)
    return _lines("[", rows, "]", depth)


def _lines(opening: str, inner: Iterable[str], closing: str, depth: int) -> str:
    """Each of `inner` indented by one more than what encloses them."""
    indent = " " * depth
    return opening + ",".join(f"\n{indent} {one}" for one in inner) + f"\n{indent}{closing}"
