"""The short fuzzing: some cases of each target, the same ones every time.

A case ends quietly or with a BoltgenError, within its time and memory. `python -m tests.fuzz` goes
on where this ends.
"""

from __future__ import annotations

from collections.abc import Sequence

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
# These ONNX models still end in what is no refusal. The reading of ONNX files is written anew:
# "onnx" joins IMPORTED, with these seeds and others, when it refuses them.
ONNX_SEEDS = (
    4,
    8,
    18,
    21,
    25,
    32,
    37,
    38,
    42,
    44,
    45,
    47,
    50,
    53,
    55,
    56,
    58,
    59,
    63,
    64,
    66,
    71,
    74,
    84,
)
IMPORTED: dict[str, Sequence[int]] = {"digits": range(12), "torch": range(12)}


def test_every_target_has_its_cases() -> None:
    assert {*CASES, *IMPORTED, "onnx"} == set(TARGETS)


@pytest.mark.parametrize("name", [*CASES, *IMPORTED])
def test_no_input_ends_with_anything_but_a_refusal(name: str) -> None:
    seeds = IMPORTED[name] if name in IMPORTED else range(CASES[name])
    found = list(results(name, seeds))
    assert [f"seed {each.seed}: {each.wrong}" for each in found if each.wrong] == []
    assert [each.seed for each in found] == list(seeds)
