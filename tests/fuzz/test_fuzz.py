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
    "library": 20,
    "cache": 8,
    "environment": 20,
    "command-line": 25,
    "inputs": 100,
}
# Seeds of models that are imported; those that TVM's importers take with a refusal or a module.
IMPORTED = {
    "onnx": range(0),
    "digits": range(0),
    "torch": range(0),
}


def test_every_target_has_its_cases() -> None:
    assert {*CASES, *IMPORTED} == set(TARGETS)


@pytest.mark.parametrize("name", [*CASES, *(name for name, seeds in IMPORTED.items() if seeds)])
def test_no_input_ends_with_anything_but_a_refusal(name: str) -> None:
    seeds = IMPORTED.get(name) or range(CASES[name])
    found = list(results(name, seeds))
    wrong = [f"{result.target}, seed {result.seed}: {result.wrong}" for result in found]
    assert [text for text, result in zip(wrong, found, strict=True) if result.wrong] == []
    assert len(found) == len(seeds)
