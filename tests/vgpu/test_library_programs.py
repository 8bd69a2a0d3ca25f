"""Kernels that nobody here wrote: a sample of benchmarks/library_programs. All of them is a
benchmark's work, for Thrust takes a compiler minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.library_programs.__main__ import FILES, build, names_of, verify

# How many programs each has: groups and atomics, and barriers and pipelines, which are mbarriers.
SAMPLE = {"groups_and_atomics": 11, "block_barriers": 4}


def test_there_are_as_many_as_the_table_says() -> None:
    assert {"cub_block", "cub_device", "thrust_order", "thrust_sums", *SAMPLE} == set(FILES)


@pytest.mark.parametrize("file", SAMPLE)
def test_all_programs_of_a_file_pass(library_folder: Path, file: str) -> None:
    (program,) = build([file], jobs=1)
    names = names_of(program, library_folder)
    assert len(names) == SAMPLE[file]
    verdicts = [verify(name, file, program, library_folder) for name in names]
    assert [f"{v.name}: {v.fault}" for v in verdicts if v.fault] == []


def test_a_name_that_is_none_has_no_verdict(library_folder: Path) -> None:
    (program,) = build(["block_barriers"], jobs=1)
    found = verify("nothing", "block_barriers", program, library_folder)
    assert found.fault == "ends with status 0"
