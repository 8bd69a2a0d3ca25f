"""How long a session may take, as users say it."""

from __future__ import annotations

import pytest

from boltgen.errors import TuningError
from boltgen.tuning.session.budget import Budget, parse_budget


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


def test_a_budget_too_small_for_one_trial_each_says_what_it_would_take() -> None:
    short = Budget(trials=9).shortfall(3, 0.7)
    assert short is None, "six rank kernels, three are for the problems"
    told = Budget(trials=8).shortfall(4, 0.7)
    assert told is not None
    assert "8trials" in told
    assert "each of 4 problems" in told
    assert "takes 11trials" in told
    assert Budget(trials=11).shortfall(4, 0.7) is None
    assert Budget(seconds=1.0).shortfall(1000, 0.7) is None
