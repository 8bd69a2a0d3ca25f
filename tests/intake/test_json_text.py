"""JSON that is too deep, too large, or says what no number and no text can be."""

from __future__ import annotations

import json

import pytest

from boltgen.intake.json_text import MOST_DEPTH, JsonError, parse_json


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_what_json_writes_is_read() -> None:
    value = {"a": [1, -(2**63), 2**63 - 1, 1.5, None, True, "\u2603", "\x1b"], "b": {}}
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode"),
        ("NaN", "NaN is no JSON number"),
        ("-Infinity", "-Infinity is no JSON number"),
        ("1e999", "the number '1e999' is beyond double precision"),
        (str(2**63), "more than 64 bits"),
        ("9" * 5000, "more than 64 bits"),
        ('"\\ud800"', "surrogates not allowed"),
        ('{"\\udfff": 1}', "surrogates not allowed"),
        (nested(MOST_DEPTH + 2), f"nested more than {MOST_DEPTH} deep"),
        ('{"a":' * 100_000, f"nested more than {MOST_DEPTH} deep"),
        (nested(100_000), f"nested more than {MOST_DEPTH} deep"),
    ],
)
def test_what_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(JsonError, match=said):
        parse_json(text)


def test_depth_and_not_breadth_is_counted() -> None:
    assert parse_json(nested(MOST_DEPTH)) is not None
    assert len(parse_json("[" + ",".join(["[]"] * 1000) + "]")) == 1000


def test_a_text_that_is_too_large_is_not_read() -> None:
    with pytest.raises(JsonError, match="it has 11 bytes, more than 10"):
        parse_json('"123456789"', most_bytes=10)
