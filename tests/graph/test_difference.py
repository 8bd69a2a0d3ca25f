"""A difference shows the lines that changed, and no line whose values have new numbers only."""

from __future__ import annotations

from collections import Counter

from boltgen.graph.difference import Line, changed, difference, operator_of

BEFORE = """def main():
    v0: float32[4] = input()
    v1: float32[4] = nn.relu(v0)
    v2: float32[4] = exp(v1)
    v3: float32[4] = tanh(v2)
    v4: float32[4] = sin(v3)
    return v4
"""
AFTER = """def main():
    v0: float32[4] = input()
    v1: float16[4] = astype(v0, from_dtype='float32')
    v2: float16[4] = nn.relu(v1)
    v3: float32[4] = exp(v2)
    v4: float32[4] = tanh(v3)
    v5: float32[4] = sin(v4)
    return v5
"""


def test_equal_lines_are_left_out_but_beside_a_change() -> None:
    assert difference(BEFORE, AFTER) == (
        Line(" ", "..."),
        Line(" ", "    v0: float32[4] = input()"),
        Line("-", "    v1: float32[4] = nn.relu(v0)"),
        Line("+", "    v1: float16[4] = astype(v0, from_dtype='float32')"),
        Line("+", "    v2: float16[4] = nn.relu(v1)"),
        Line(" ", "    v3: float32[4] = exp(v2)"),
        Line(" ", "..."),
    )
    assert not [line for line in difference(BEFORE, BEFORE) if line.mark != " "]


def test_changes_of_one_operator_are_counted() -> None:
    gone, come = changed(BEFORE, AFTER, "nn.relu")
    assert gone == Counter({"v: float32[4] = nn.relu(v)": 1})
    assert come == Counter({"v: float16[4] = nn.relu(v)": 1})
    assert changed(BEFORE, AFTER, "exp") == (Counter(), Counter())


def test_a_line_has_the_operator_of_its_value() -> None:
    assert operator_of("    v1: float32[4] = nn.relu(v0)") == "nn.relu"
    assert operator_of("    v1: 'float32 x 4'[n + 2*m] = 'vendor op'(v0)") == "vendor op"
    assert operator_of("    return v5") is None
