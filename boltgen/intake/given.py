"""Checks of the values that users give for options, as a value or as text.

Each check takes an option's name and what is given for it, and raises a BoltgenError that says what
is wrong.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from boltgen.errors import BoltgenError, DeviceError
from boltgen.intake.numerals import MOST_EXTENT, shown, whole_number

DEVICES = "cuda, cuda:1, vgpu, or recorded:FILE"
_MOST_ORDINAL = 1023

Check = Callable[[str, Any], Any]
Named = TypeVar("Named", bound=Enum)


def as_it_is(_name: str, given: Any) -> Any:
    """Accept any value."""
    return given


def yes_or_no(name: str, given: Any) -> bool:
    """Accept True or False, and nothing else: "no" would count as true."""
    if not isinstance(given, bool):
        raise BoltgenError(f"{name}={shown(str(given))} is neither True nor False")
    return given


def optional(check: Check) -> Check:
    """Apply `check` to all but None, which stays None."""
    return lambda name, given: None if given is None else check(name, given)


def number(least: int, most: int) -> Check:
    """A check for whole numbers."""

    def check(name: str, given: Any) -> int:
        try:
            return whole_number(str(operator.index(given)), least, most)
        except (TypeError, ValueError):
            raise BoltgenError(
                f"{name}={shown(str(given))} is no whole number in {least} to {most}"
            ) from None

    return check


def member(kind: type[Named], what: str, asked: Any) -> Named:
    """Return the member of an enumeration with value `asked`; `what` is the users' name for it."""
    try:
        return kind(asked)
    except ValueError:
        names = ", ".join(str(each.value) for each in kind)
        raise BoltgenError(f"unknown {what} {asked!r}; the {what}s are {names}") from None


def path(_name: str, given: Any) -> Path:
    """A path, or the text of one."""
    return Path(given)


def paths(_name: str, given: Any) -> tuple[Path, ...]:
    """Return one path, or several."""
    return (Path(given),) if isinstance(given, (str, Path)) else tuple(map(Path, given))


def samples(_name: str, given: Any) -> tuple[Any, ...]:
    """Return arrays by name, or read them from a file; one sample or several."""
    one = isinstance(given, (Mapping, str, Path))
    return (given,) if one else tuple(given)


def device(_name: str, given: Any) -> str:
    """Refuse a text that names no device, before anything is imported or built for it.

    Raises:
        DeviceError: it is not "cuda", "cuda:1", "vgpu" or "recorded:FILE".
    """
    kind, colon, rest = str(given).partition(":")
    known = given in ("cuda", "vgpu") or (kind in {"cuda", "recorded"} and bool(colon and rest))
    wrong = f"unknown device {shown(str(given))} to tune on; give {DEVICES}"
    if not known:
        raise DeviceError(wrong)
    if kind == "cuda" and colon:
        try:
            whole_number(rest, 0, _MOST_ORDINAL)
        except ValueError as error:
            raise DeviceError(f"{wrong}: {error}") from None
    return str(given)


# An extent that stays open: a range of values, or the name that the model has for it.
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_OPEN = re.compile(r"\?|[A-Za-z_][A-Za-z0-9_.]*")


def shapes(_name: str, given: Any) -> dict[str, tuple[int | str, ...]]:
    """Return shapes by name, also from texts like "name=1..64,3,seq"; none for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise BoltgenError(f"shapes={shown(str(given))} is no mapping of names to shapes")
        return dict(parse_shape(text) for text in given)
    return {name: _extents(name, extents) for name, extents in given.items()}


def _extents(name: str, extents: Any) -> tuple[int | str, ...]:
    wrong = f"the shape {shown(str(extents))} of input {name!r}"
    if isinstance(extents, str):
        raise BoltgenError(f"{wrong} is no sequence of extents")
    try:
        return tuple(
            _extent(each) if isinstance(each, str) else _extent(str(operator.index(each)))
            for each in extents
        )
    except TypeError:
        raise BoltgenError(f"{wrong} is no sequence of whole numbers, ranges and names") from None
    except ValueError as error:
        raise BoltgenError(f"{wrong}: {error}") from None


def _extent(text: str) -> int | str:
    """Parse an extent: a number; or, for a dynamic one, a range "1..64" or a name, as it is."""
    if (ends := _RANGE.fullmatch(text)) is not None:
        low, high = (whole_number(end, 1, MOST_EXTENT) for end in ends.groups())
        if low > high:
            raise ValueError(f"the range {text} is empty")
        return low if low == high else f"{low}..{high}"
    return text if _OPEN.fullmatch(text) else whole_number(text, 0, MOST_EXTENT)


def parse_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Parse `name=1,3,224,seq` to a name, which may hold an equals sign, and a shape.

    An extent is a number, a range like 1..64, or the name of one that stays open.

    Raises:
        BoltgenError: it is not of that form.
    """
    name, _, extents = text.rpartition("=")
    wrong = f"the shape {shown(text)} is not of the form name=1,3,224,224"
    if not name:
        raise BoltgenError(wrong)
    try:
        return name, tuple(map(_extent, extents.split(",")))
    except ValueError as error:
        raise BoltgenError(f"{wrong}: {error}") from None
