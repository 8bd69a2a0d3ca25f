"""Numbers as people write them, and as nobody should."""

from __future__ import annotations

import pytest

from boltgen.intake.numerals import shown, whole_number


@pytest.mark.parametrize(("text", "number"), [("1", 1), (" 12 ", 12), ("007", 7), ("4096", 4096)])
def test_a_number(text: str, number: int) -> None:
    assert whole_number(text, 0, 4096) == number


NONE = ["", " ", "-1", "+1", "1.5", "1e3", "0x10", "1_0", "\u00b2", "\u0661", "4097", "1 2"]


@pytest.mark.parametrize("text", [*NONE, "9" * 5000])
def test_what_is_none_is_quoted_with_the_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="is no whole number in 0 to 4096") as caught:
        whole_number(text, 0, 4096)
    assert text[:10] in str(caught.value)
    assert len(str(caught.value)) < 120


def test_the_least_number_is_a_bound() -> None:
    with pytest.raises(ValueError, match="'0' is no whole number in 1 to 9"):
        whole_number("0", 1, 9)


def test_a_quoted_text_is_harmless_and_short() -> None:
    assert shown("\x1b[31m") == "'\\x1b[31m'"
    assert shown("a\u202eb") == "'a\\u202eb'"
    assert shown("\u2603") == "'\u2603'"
    assert len(shown("x" * 10_000)) == 60
