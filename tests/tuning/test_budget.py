"""How long a session may take, as users say it."""

from __future__ import annotations

import pytest

from boltgen.errors import TuningError
from boltgen.tuning.budget import Budget, parse_budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("120s", Budget(seconds=120)),
        ("1.5 h", Budget(seconds=5400)),
        ("2min", Budget(seconds=120)),
        ("500trials", Budget(trials=500)),
        ("1 trial", Budget(trials=1)),
    ],
)
def test_budgets(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text", ["", "120", "s", "-3s", "1.5trials", "3 fortnights", "1e9s", "\u00b2s"]
)
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(TuningError, match="is not like 120s, 2min, 1h or 500trials"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["0s", "0trials", "0.0h"])
def test_a_budget_of_zero(text: str) -> None:
    with pytest.raises(TuningError, match=r"a budget of 0(s|trials) measures nothing: give more"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["9" * 40 + "s", "9" * 5000 + "h", "9" * 30 + "trials"])
def test_a_budget_beyond_all_bounds(text: str) -> None:
    with pytest.raises(TuningError, match="is no whole number in 0 to 1000000000") as caught:
        parse_budget(text)
    assert len(str(caught.value)) < 250
