"""The table of PyTorch's operators in the docs: as recorded."""

from __future__ import annotations

from benchmarks.torch_operator_cases import CASES
from benchmarks.torch_operators import TABLE, read_kept, table


def test_the_table_is_that_of_the_recorded_operators() -> None:
    kept = read_kept()
    assert TABLE.read_text() == table(kept), "run `python -m benchmarks.torch_operators --table`"
    assert kept["operators"].keys() <= CASES.keys()


def test_every_operator_is_right_or_refused_by_name() -> None:
    found = read_kept()["operators"]
    assert {each["status"] for each in found.values()} <= {"ok", "refused"}
    assert sum(each["status"] == "ok" for each in found.values()) > 100
