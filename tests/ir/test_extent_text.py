"""Extents as text: what a formula is, and which dimensions follow from its value."""

from __future__ import annotations

import pytest

from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.extent_text import Formula, solve


@pytest.mark.parametrize(
    ("text", "names", "value"),
    [
        ("h", ("h",), 7),
        ("2*h", ("h",), 14),
        ("-1 + h", ("h",), 6),
        ("h*w + 3", ("h", "w"), 38),
        ("2*(h // 2)", ("h",), 6),
    ],
)
def test_a_formula_has_names_and_a_value(text: str, names: tuple[str, ...], value: int) -> None:
    formula = Formula(text)
    assert formula.names == names
    assert formula.at({"h": 7, "w": 5}) == value


@pytest.mark.parametrize(
    "text", ["batch size", "h**2", "f(h)", "h.w", "1.5*h", "None", "8 // h", "h // 0", "(" * 600]
)
def test_what_is_no_formula_is_a_name(text: str) -> None:
    formula = Formula(text)
    assert formula.is_name
    assert formula.names == (text,)


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [("2*h", 14, 7), ("2*h", 15, None), ("4*h + 1", 29, 7), ("8 - h", 1, 7), ("h // 2", 3, None)],
)
def test_one_dimension_follows_from_a_linear_formula(
    text: str, value: int, found: int | None
) -> None:
    assert Formula(text).solved("h", value, {}) == found


def test_what_is_divided_or_multiplied_by_itself_is_not_solved() -> None:
    assert Formula("h*h").solved("h", 9, {}) is None
    assert Formula("h*w").solved("h", 9, {"w": 3}) == 3


def test_formulas_are_solved_one_after_the_other() -> None:
    known = {"h": 3}
    solve([(Formula("h + 2*w + d"), 18), (Formula("d - h"), 4)], known)
    assert known == {"h": 3, "d": 7, "w": 4}


def test_a_symbol_that_is_a_formula_is_in_brackets_within_another() -> None:
    half = symbolic(Symbol("h // 2"))
    assert str(half) == "h // 2"
    assert Formula(str(2 * half)).at({"h": 5}) == 4
