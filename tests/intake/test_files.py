"""Files that are none, and results that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boltgen.intake.files import read_regular, written_whole


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, more than 4"):
        read_regular(path, 4)


def test_a_pipe_a_device_and_a_folder_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is a pipe or a device, not a file"):
            read_regular(path, 10)
    with pytest.raises(IsADirectoryError, match="it is a folder, not a file"):
        read_regular(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)


def test_a_file_of_the_kernel_that_says_it_is_empty_has_a_limit_too() -> None:
    with pytest.raises(OSError, match="it has more than 3 bytes"):
        read_regular(Path("/proc/self/status"), 3)


def test_a_result_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".txt")
    path.write_text("before")
    with written_whole(path, lambda file: file.read() == b"before") as staged:
        assert staged.suffix == ".txt"
        staged.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_result_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("before")

    def fail() -> None:
        with written_whole(path, lambda file: file.read() == b"before") as staged:
            staged.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe or a device"), written_whole(tmp_path / "pipe", bool):
        raise AssertionError("it is not written")


def test_a_file_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("mine")
    with (
        pytest.raises(FileExistsError, match="boltgen did not write it; it is left as it is"),
        written_whole(path, lambda file: file.read() == b"ours"),
    ):
        raise AssertionError("it is not written")
    assert path.read_text() == "mine"
    path.write_text("")
    with written_whole(path, lambda _: False) as staged:
        staged.write_text("after")
    assert path.read_text() == "after"
