"""How long a tuning session may last: in seconds or in trials."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from boltgen.errors import TuningError

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most so many seconds, or so many trials: exactly one of the two is given.

    Raises:
        TuningError: neither or both are given, or there is nothing to spend.
    """

    seconds: float | None = None
    trials: int | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.trials is None):
            raise TuningError("a budget is either in seconds or in trials")
        amount = self.seconds if self.trials is None else self.trials
        if amount is None or not math.isfinite(amount) or amount <= 0:
            raise TuningError(
                f"a budget of {self} measures nothing: give more, like 120s or 500trials; what "
                "was measured before is used by `boltgen compile` without a budget"
            )

    def __str__(self) -> str:
        return f"{self.trials}trials" if self.seconds is None else f"{self.seconds:g}s"


def parse_budget(text: str) -> Budget:
    """The budget that "120s", "2min", "1h" or "500trials" says.

    Raises:
        TuningError: it is not of that form, or zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    amount, unit = (float(match[1]), match[2]) if match else (0.0, "")
    if unit in _UNITS_S:
        return Budget(seconds=amount * _UNITS_S[unit])
    if unit in {"trial", "trials"} and amount == int(amount):
        return Budget(trials=int(amount))
    raise TuningError(f"budget {text!r} is not like 120s, 2min, 1h or 500trials")


def budget_of(given: str | Budget) -> Budget:
    """A budget as a value or as a text.

    Raises:
        TuningError: the text is of another form, or zero.
    """
    return given if isinstance(given, Budget) else parse_budget(given)
