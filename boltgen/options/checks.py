"""Checks of options' values: each returns the value to keep, or refuses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

from boltgen.errors import BoltgenError, InvalidProblemError, TuningError
from boltgen.families.family import Level
from boltgen.intake import given
from boltgen.intake.given import Check
from boltgen.intake.numerals import shown
from boltgen.ir.dtypes import DType
from boltgen.tuning.session.budget import Budget, budget_of

FRONTENDS = ("relax", "relay")


def one_of(kind: type[Enum], what: str) -> Check:
    """Return the member of an enumeration with this value; `what` is the users' name for it."""
    return lambda _name, asked: given.member(kind, what, asked)


def accumulator(_name: str, asked: Any) -> DType:
    """The type in which products are summed."""
    known = DType.F16.accumulators()
    try:
        found = DType(asked)
    except ValueError:
        found = None
    if found not in known:
        names = " or ".join(sorted(repr(dtype.value) for dtype in known))
        raise InvalidProblemError(
            f"products cannot be accumulated in {shown(str(asked))}; give {names}"
        )
    return found


def frontend(_name: str, asked: Any) -> str:
    """The name of one of TVM's IRs."""
    if asked not in FRONTENDS:
        raise BoltgenError(
            f"unknown frontend {asked!r}; the frontends are {' and '.join(FRONTENDS)}"
        )
    return str(asked)


def level(_name: str, asked: Any) -> Level:
    """The level of a kernel library."""
    return given.member(Level, "level", asked)


def weights(name: str, asked: Any) -> tuple[float, ...]:
    """Numbers above 0, one for each model."""
    each = asked.split(",") if isinstance(asked, str) else asked or ()
    try:
        found = tuple(float(weight) for weight in each)
    except (TypeError, ValueError):
        found = (math.nan,)
    if not all(0.0 < weight < math.inf for weight in found):
        raise BoltgenError(f"{name}={shown(str(asked))} are no numbers above 0, like 2,1")
    return found


def budget(name: str, asked: Any) -> Budget:
    """Seconds, or trials."""
    if not isinstance(asked, (str, Budget)):
        raise TuningError(f"{name}={shown(str(asked))} is not like 120s, 2min, 1h or 500trials")
    return budget_of(asked)


def named(find: Callable[[str], Any]) -> Check:
    """Return a check for a registry: it takes a name, or a value that need not be registered."""
    return lambda _name, asked: find(asked) if isinstance(asked, str) else asked
