"""The sizes that a model will run, with counts; a table of kernels is chosen for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boltgen.errors import BoltgenError
from boltgen.intake.json_text import JsonError, read_json
from boltgen.intake.numerals import MOST_EXTENT, shown
from boltgen.ir.extent import Dim, Symbol
from boltgen.problems.region import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Values of a model's dynamic dimensions by name, and the number of calls with these values."""

    values: tuple[tuple[str, int], ...]
    count: int = 1


def traffic_of(_name: str, given: Any) -> tuple[Sizes, ...]:
    """Return sizes as they are, or read them from a JSON file.

    The file has a list like [{"batch": 8, "seq": 128, "count": 90}].

    Raises:
        BoltgenError: the file cannot be read, or has an invalid size.
    """
    if not isinstance(given, (str, Path)):
        return tuple(given or ())
    try:
        values = read_json(Path(given))
    except (OSError, JsonError) as error:
        raise BoltgenError(f"the traffic {given} cannot be read: {error}") from error
    if not isinstance(values, list):
        raise BoltgenError(f"the traffic {given} is no list of sizes")
    return tuple(_sizes(str(given), index, each) for index, each in enumerate(values))


def _sizes(file: str, index: int, given: Any) -> Sizes:
    wrong = f"entry {index} of the traffic {file}"
    if not isinstance(given, dict):
        raise BoltgenError(f"{wrong} is no object of sizes by name")
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_EXTENT:
            raise BoltgenError(f"{wrong} has {name}={shown(str(value))}, no number from 1 on")
    values = dict(given)
    count = values.pop("count", 1)
    return Sizes(values=tuple(values.items()), count=count)


def sizes_of_region(
    region: Region, traffic: Sequence[Sizes]
) -> list[tuple[Mapping[Symbol, int], int]]:
    """Return the values of a region's symbols for each of `traffic`, with its count.

    Raises:
        BoltgenError: a dimension that the region depends on is missing or out of its range.
    """
    return [
        ({own: _value(extent, dict(sizes.values)) for own, extent in region.origins}, sizes.count)
        for sizes in traffic
    ]


def _value(extent: Dim, values: Mapping[str, int]) -> int:
    found = {}
    for symbol in extent.symbols:
        if symbol.name not in values:
            given = ", ".join(map(repr, values)) or "none"
            raise BoltgenError(
                f"the traffic does not say how large {symbol.name!r} is; it has {given}"
            )
        value = values[symbol.name]
        if not symbol.low <= value <= symbol.high:
            raise BoltgenError(
                f"the traffic has {symbol.name} = {value}; the model takes {symbol.low} to "
                f"{symbol.high}"
            )
        found[symbol] = value
    return extent.of(found)
