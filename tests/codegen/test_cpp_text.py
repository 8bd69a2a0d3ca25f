from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.codegen.cpp_text import (
    comment_field,
    comment_lines,
    comment_text,
    float_literal,
    identifier,
    string_literal,
)
from boltgen.errors import InvalidProblemError

NASTY = [
    "plain",
    'quo"te',
    "it's",
    "new\nline",
    "carriage\rreturn",
    "end */ #error comment",
    "begin /* comment",
    "continue \\",
    "trigraph ??/",
    "ünïcödé ⊕ \u202e\u2028",
    "$(rm -rf ~) `id` ; | &",
    "tab\tnul\0bell\a",
    "\udc80 lone surrogate",
    "",
    "x" * 3000,
]


@pytest.mark.parametrize("text", NASTY)
def test_a_comment_is_one_line_of_harmless_ascii(text: str) -> None:
    shown = comment_text(text)
    assert re.fullmatch(r"[ -\[\]-~]{0,400}", shown)
    assert "*/" not in shown and "/*" not in shown and "??/" not in shown


@given(st.text())
def test_comment_lines_stay_comments(text: str) -> None:
    for line in comment_lines(comment_field("For", text)):
        assert line.startswith("//")
        assert line.isascii() and line.isprintable()
        assert not line.endswith("\\")
        assert len(line) <= 100


def _value(literal: str) -> bytes:
    """What C++ reads from a literal of octal escapes and plain characters."""
    assert literal[0] == literal[-1] == '"'
    value = bytearray()
    for token in re.findall(r"\\[0-7]{3}|[^\\\"]", literal[1:-1]):
        value.append(int(token[1:], 8) if token.startswith("\\") else ord(token))
    return bytes(value)


@given(st.text())
def test_a_string_literal_has_the_text_as_its_value(text: str) -> None:
    literal = string_literal(text)
    assert literal.isascii() and literal.isprintable()
    assert _value(literal) == text.encode("utf-8", errors="replace")
    assert literal.count('"') == 2
    assert "?" not in literal


@pytest.mark.parametrize("name", ["f", "_x9", "tvmgen_default_boltgen_main_0"])
def test_identifiers_pass(name: str) -> None:
    assert identifier(name) == name


@pytest.mark.parametrize("name", ["", "9a", "a b", "a;b", 'a"', "a\n", "é", "a" * 300])
def test_what_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(InvalidProblemError, match="cannot be a C symbol"):
        identifier(name)


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (0.0, "0x0p+0f"),
        (-0.0, "-0x0p+0f"),
        (6.0, "0x1.8p+2f"),
        (0.1, "0x1.99999ap-4f"),
        (1e300, "CUDART_INF_F"),
        (-float("inf"), "-CUDART_INF_F"),
        (1e-45, "0x1p-149f"),
    ],
)
def test_float_literals_are_exact_in_fp32(value: float, literal: str) -> None:
    assert float_literal(value) == literal


@given(st.floats(allow_nan=False, width=32))
def test_a_float_literal_reads_back(value: float) -> None:
    literal = float_literal(value)
    if "INF" not in literal:
        assert np.float32(float.fromhex(literal.removesuffix("f"))) == np.float32(value)
