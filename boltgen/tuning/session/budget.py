"""The length of a tuning session, in seconds or in trials."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

from boltgen.errors import TuningError
from boltgen.intake.numerals import shown, whole_number

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS_TRIALS = frozenset({"trial", "trials"})
# The limit in any unit; a larger number is a mistake.
_MOST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit in seconds or in trials: exactly one of the two is given."""

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

    def shortfall(self, problems: int, share: float) -> str | None:
        """Say how many trials are needed to time each problem once, if this budget may not suffice.

        Round one may take the part `share` of the trials first. Return None if the budget suffices,
        or is in seconds, since the number of trials per second is unknown.
        """
        if self.trials is None or self.trials - math.floor(share * self.trials) >= problems:
            return None
        needed = next(n for n in itertools.count(1) if n - math.floor(share * n) >= problems)
        return (
            f"a budget of {self} may not time each of {problems} problems once as it ships: that "
            f"takes {needed}trials, since ranking kernels comes first and takes up to "
            f"{share:.0%} of them"
        )

    def __str__(self) -> str:
        return f"{self.trials}trials" if self.seconds is None else f"{self.seconds:g}s"


def parse_budget(text: str) -> Budget:
    """Return the budget for a text such as "120s", "2min", "1h" or "500trials".

    Raises:
        TuningError: the text has another form, or is zero.
    """
    match = re.fullmatch(r"([0-9]+)(\.[0-9]{1,9})?\s*([a-z]+)", text.strip().lower())
    unit = match[3] if match else ""
    wrong = f"budget {shown(text)} is not like 120s, 2min, 1h or 500trials"
    if match is None or unit not in _UNITS_S.keys() | _UNITS_TRIALS:
        raise TuningError(wrong)
    try:
        whole = whole_number(match[1], 0, _MOST)
    except ValueError as error:
        raise TuningError(f"{wrong}: {error}") from None
    fraction = float(match[2] or 0)
    if unit in _UNITS_S:
        return Budget(seconds=(whole + fraction) * _UNITS_S[unit])
    if fraction:
        raise TuningError(f"{wrong}: there is no part of a trial")
    return Budget(trials=whole)


def budget_of(given: str | Budget) -> Budget:
    """Return the budget that a value or a text gives.

    Raises:
        TuningError: the text has another form, or is zero.
    """
    return given if isinstance(given, Budget) else parse_budget(given)
