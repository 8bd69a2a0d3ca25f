"""The one reader of JSON from outside, with limits on size, depth and numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boltgen.intake.files import read_regular
from boltgen.intake.numerals import shown

# The deepest that boltgen writes is a record of a chain, with nine levels.
MOST_DEPTH = 32
# The metadata of a model of ten thousand operators has a few megabytes.
MOST_BYTES = 64 << 20
# A float of double precision, or an integer of 64 bits, has fewer characters.
_MOST_NUMBER = 400


class JsonError(ValueError):
    """A text that is no JSON, or is beyond the limits; the message says which."""


def parse_json(text: str | bytes, most_bytes: int = MOST_BYTES) -> Any:
    """The value of a JSON text.

    Integers have 64 bits at most, floats are finite, and texts can be encoded as UTF-8.

    Raises:
        JsonError: it is none, or is larger or more deeply nested than anything of boltgen's.
    """
    if len(text) > most_bytes:
        raise JsonError(f"not JSON of boltgen's: it has {len(text)} bytes, more than {most_bytes}")
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(
            decoded, parse_constant=_refused, parse_int=_integer, parse_float=_number
        )
        # Half a surrogate pair, which only an escape can write, has no UTF-8 form.
        if "\\u" in decoded:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except ValueError as error:
        raise JsonError(f"not JSON: {error}") from error
    if decoded.count("[") + decoded.count("{") > MOST_DEPTH:
        _check_depth(value)
    return value


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """The value in a JSON file.

    Raises:
        OSError: it is no regular file, or cannot be read.
        JsonError: it holds no JSON, or is beyond the limits.
    """
    return parse_json(read_regular(path, most_bytes), most_bytes)


_TOO_DEEP = f"not JSON of boltgen's: it is nested more than {MOST_DEPTH} deep"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return
    raise JsonError(_TOO_DEEP)


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _integer(text: str) -> int:
    number = int(text) if len(text) <= _MOST_NUMBER else 2**64
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the integer {shown(text)} has more than 64 bits")
    return number


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {shown(text)} is beyond double precision")
    return number
