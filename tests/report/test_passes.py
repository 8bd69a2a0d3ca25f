"""The differences between passes that a report shows."""

from __future__ import annotations

from boltgen.report.passes import changes_of


def test_counts_have_the_lines_that_are_left_out() -> None:
    before = "".join(f"    v{i}: float32[{i}] = input()\n" for i in range(300))
    after = before.replace("float32", "float16")
    (function,) = changes_of({"main": [("imported", before), ("cast", after)]}, {"cast": "Cast."})
    (change,) = function.changes
    assert change.counts == "300 lines went, 300 came"
    assert (len(change.lines), change.left_out) == (400, 200)


def test_a_single_line_is_counted_in_the_singular() -> None:
    texts = [("imported", "    v0: float32[1] = input()\n"), ("drop", "")]
    (function,) = changes_of({"main": texts}, {})
    assert function.changes[0].counts == "1 line went, 0 came"
