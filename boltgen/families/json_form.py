"""Convert frozen values to JSON and back, strictly: no unknown, missing or mistyped field.

The form follows from the type hints. A dataclass is an object with its fields. If a value may have
one of several dataclasses, such as a problem or a family's configuration, the object also has
"type", the class's name. An enum is its value, a tuple a list, a mapping of texts an object, a time
its ISO 8601 text, and an infinite float "inf" or "-inf", which JSON lacks.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from boltgen.errors import InvalidProblemError, RecordError
from boltgen.families.family import Config
from boltgen.families.registry import FAMILIES
from boltgen.ir.key import is_shown
from boltgen.problems.kinds import KINDS
from boltgen.problems.problem import Problem

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
_TYPE = "type"
_INFINITE = {"inf": math.inf, "-inf": -math.inf}

Encoder: TypeAlias = Callable[[Any], Json]
Decoder: TypeAlias = Callable[[Json, str], Any]


def encode(kind: Any, value: Any) -> Json:
    """Return the JSON form of `value`, which has the type hint `kind`."""
    return _coders(kind)[0](value)


def decode(kind: Any, json: Json, field: str = "") -> Any:
    """Return the value of type `kind` for its form `json`; `field` is its place in a larger form.

    Raises:
        RecordError: the form is invalid; the message names the field.
    """
    return _coders(kind)[1](json, field)


def _wrong(field: str, expected: str, found: Json) -> RecordError:
    shown = repr(found) if len(repr(found)) <= 60 else repr(found)[:57] + "..."
    return RecordError(f"{field or 'the value'}: expected {expected}, found {shown}")


# Protocols with their current classes: families and kinds can be registered at any time.
_OPEN: dict[Any, Callable[[], tuple[type[Any], ...]]] = {
    Problem: lambda: KINDS.problem_types,
    Config: lambda: FAMILIES.config_types,
}


@lru_cache(maxsize=256)
def _coders(kind: Any) -> tuple[Encoder, Decoder]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if set(arguments) == {int, str}:
            return _EXTENT
        return _optional(arguments) if types.NoneType in arguments else _tagged(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is Mapping:
        return _mapping(arguments)
    if kind in _OPEN:
        return _open(_OPEN[kind])
    if isinstance(kind, type):
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if issubclass(kind, Enum):
            return _enum(kind)
        if is_dataclass(kind):
            return _object(kind)
    raise TypeError(f"no JSON form for {kind!r}")


def _exactly(kind: type, name: str) -> tuple[Encoder, Decoder]:
    def decoded(json: Json, field: str) -> Any:
        if type(json) is not kind:  # True must not count as a number
            raise _wrong(field, name, json)
        return json

    return (lambda value: value), decoded


def _encode_float(value: float) -> Json:
    if math.isnan(value):
        raise RecordError("NaN has no JSON form")
    return float(value) if math.isfinite(value) else str(float(value))


def _decode_float(json: Json, field: str) -> float:
    if isinstance(json, str) and json in _INFINITE:
        return _INFINITE[json]
    if isinstance(json, bool) or not isinstance(json, (int, float)):
        raise _wrong(field, "a number", json)
    try:
        return float(json)
    except OverflowError:
        raise _wrong(field, "a number of double precision", json) from None


def _decode_time(json: Json, field: str) -> datetime:
    try:
        moment = datetime.fromisoformat(json) if isinstance(json, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _wrong(field, "a time with its zone like '2026-01-31T12:00:00+00:00'", json)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        raise _wrong(field, "a time of the years 1 to 9999", json) from None


def _decode_extent(json: Json, field: str) -> int | str:
    if type(json) is int or isinstance(json, str):
        return json
    raise _wrong(field, "an integer or a name", json)


_EXTENT: tuple[Encoder, Decoder] = (lambda value: value), _decode_extent
_SIMPLE: dict[type, tuple[Encoder, Decoder]] = {
    str: _exactly(str, "a text"),
    int: _exactly(int, "an integer"),
    bool: _exactly(bool, "true or false"),
    float: (_encode_float, _decode_float),
    datetime: (datetime.isoformat, _decode_time),
}


def _enum(kind: type[Enum]) -> tuple[Encoder, Decoder]:
    members = {member.value: member for member in kind}

    def decoded(json: Json, field: str) -> Enum:
        if not isinstance(json, str) or json not in members:
            raise _wrong(field, "one of " + ", ".join(map(repr, members)), json)
        return members[json]

    return (lambda value: value.value), decoded


def _optional(arguments: tuple[Any, ...]) -> tuple[Encoder, Decoder]:
    (inner,) = (argument for argument in arguments if argument is not types.NoneType)
    to_json, from_json = _coders(inner)
    return (
        lambda value: None if value is None else to_json(value),
        lambda json, field: None if json is None else from_json(json, field),
    )


def _tuple(arguments: tuple[Any, ...]) -> tuple[Encoder, Decoder]:
    repeated = len(arguments) == 2 and arguments[1] is Ellipsis
    coders = [_coders(kind) for kind in (arguments[:1] if repeated else arguments)]

    def coder(position: int) -> tuple[Encoder, Decoder]:
        return coders[0 if repeated else position]

    def decoded(json: Json, field: str) -> tuple[Any, ...]:
        if not isinstance(json, list) or (not repeated and len(json) != len(coders)):
            raise _wrong(field, "a list" if repeated else f"a list of {len(coders)}", json)
        return tuple(coder(i)[1](item, f"{field}[{i}]") for i, item in enumerate(json))

    return (lambda value: [coder(i)[0](item) for i, item in enumerate(value)]), decoded


def _mapping(arguments: tuple[Any, ...]) -> tuple[Encoder, Decoder]:
    key, item = arguments
    if key is not str:
        raise TypeError(f"no JSON form for a mapping of {key!r}")
    to_json, from_json = _coders(item)

    def decoded(json: Json, field: str) -> dict[str, Any]:
        if not isinstance(json, dict):
            raise _wrong(field, "an object", json)
        return {name: from_json(value, f"{field}.{name}") for name, value in json.items()}

    return (lambda value: {name: to_json(each) for name, each in value.items()}), decoded


def _tagged(arguments: tuple[Any, ...]) -> tuple[Encoder, Decoder]:
    """Return coders for one of several dataclasses, distinguished by "type"."""
    by_name = {kind.__name__: (kind, *_coders(kind)) for kind in arguments}

    def encoded(value: Any) -> Json:
        form = by_name[type(value).__name__][1](value)
        if not isinstance(form, dict):
            raise TypeError(f"no tagged form for {type(value).__name__}")
        return {_TYPE: type(value).__name__, **form}

    def decoded(json: Json, field: str) -> Any:
        name = json.get(_TYPE) if isinstance(json, dict) else None
        if not isinstance(json, dict) or not isinstance(name, str) or name not in by_name:
            known = ", ".join(map(repr, by_name))
            raise _wrong(field, f'an object whose "type" is one of {known}', json)
        return by_name[name][2]({k: v for k, v in json.items() if k != _TYPE}, field)

    return encoded, decoded


def _open(kinds: Callable[[], tuple[type[Any], ...]]) -> tuple[Encoder, Decoder]:
    """Return coders for the classes of a protocol that exist when a value is written or read."""

    def encoded(value: Any) -> Json:
        return _closed(kinds())[0](value)

    def decoded(json: Json, field: str) -> Any:
        return _closed(kinds())[1](json, field)

    return encoded, decoded


@lru_cache(maxsize=16)
def _closed(kinds: tuple[type[Any], ...]) -> tuple[Encoder, Decoder]:
    return _tagged(kinds)


def _object(kind: type[Any]) -> tuple[Encoder, Decoder]:
    hints = get_type_hints(kind)
    coders = {field.name: _coders(hints[field.name]) for field in fields(kind)}
    optional = {f.name for f in fields(kind) if not (f.default is f.default_factory is MISSING)}

    def encoded(value: Any) -> Json:
        shown = [field.name for field in fields(kind) if is_shown(value, field)]
        return {name: coders[name][0](getattr(value, name)) for name in shown}

    def decoded(json: Json, field: str) -> Any:
        if not isinstance(json, dict):
            raise _wrong(field, f"an object ({kind.__name__})", json)
        within = f"{field}." if field else ""
        if unknown := sorted(json.keys() - coders.keys()):
            raise RecordError(_unknown(within, unknown[0], kind, [*coders]))
        if missing := [n for n in coders if n not in json and n not in optional]:
            raise RecordError(f"{within}{missing[0]}: this field of {kind.__name__} is missing")
        values = {name: coders[name][1](item, within + name) for name, item in json.items()}
        try:
            return kind(**values)
        except (InvalidProblemError, ValueError) as error:
            raise RecordError(f"{field or kind.__name__}: {error}") from error

    return encoded, decoded


def _unknown(within: str, name: str, kind: type[Any], known: list[str]) -> str:
    """Describe an unknown field; a field in another unit is the likeliest mistake."""
    stem = name.rpartition("_")[0]
    same = [other for other in known if "_" in other and other.rpartition("_")[0] == stem]
    unit = f"; the unit is part of the name: convert it to {same[0]!r}" if same else ""
    return f"{within}{name}: {kind.__name__} has no such field{unit}"
