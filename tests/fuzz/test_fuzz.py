"""The short fuzzing: some cases of each target, the same ones every time.

A case ends quietly or with a BoltgenError, within its time and memory. `python -m tests.fuzz` goes
on where this ends.
"""

from __future__ import annotations

import pytest

from tests.fuzz.runner import results
from tests.fuzz.targets import TARGETS

CASES = {
    "metadata": 25,
    "records": 25,
    "database": 15,
    "rows": 12,
    "earlier-rows": 12,
    "library": 20,
    "cache": 8,
    "environment": 20,
    "command-line": 25,
    "inputs": 100,
    "digits": 12,
    "onnx": 90,
    "torch": 12,
}


def test_every_target_has_its_cases() -> None:
    assert CASES.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", CASES)
def test_no_input_ends_with_anything_but_a_refusal(name: str) -> None:
    seeds = range(CASES[name])
    found = list(results(name, seeds))
    assert [f"seed {each.seed}: {each.wrong}" for each in found if each.wrong] == []
    assert [each.seed for each in found] == list(seeds)
