"""Kernels that nobody here wrote: a sample of benchmarks/library_programs. All of them is a
benchmark's work, for Thrust takes a compiler minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.library_programs.__main__ import FILES, build, names_of, verify

FILE = "groups_and_atomics"


@pytest.fixture(scope="module")
def program() -> Path:
    return build([FILE], jobs=1)[0]


def test_there_are_as_many_as_the_table_says() -> None:
    assert {"cub_block", "cub_device", "thrust_order", "thrust_sums", FILE} <= set(FILES)


def test_groups_and_atomics(program: Path, library_folder: Path) -> None:
    names = names_of(program, library_folder)
    assert len(names) >= 10
    verdicts = [verify(name, FILE, program, library_folder) for name in names]
    assert [f"{v.name}: {v.fault}" for v in verdicts if v.fault] == []


def test_a_name_that_is_none_has_no_verdict(program: Path, library_folder: Path) -> None:
    assert verify("nothing", FILE, program, library_folder).fault == "ends with status 0"
