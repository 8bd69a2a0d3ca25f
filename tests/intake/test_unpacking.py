"""Small files that would become huge ones."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from pathlib import Path

import pytest

from boltgen.intake.unpacking import BombError, check_zip, lines_of, open_unpacked


def test_both_forms_are_read(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(100_000)
    for name, written in (("plain", content), ("packed", gzip.compress(content))):
        (tmp_path / name).write_bytes(written)
        with open_unpacked(tmp_path / name, harmless_bytes=1000) as stream:
            assert stream.read() == content


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(50 << 20)))
    read = 0
    with (
        open_unpacked(path, harmless_bytes=1 << 20) as stream,
        pytest.raises(BombError, match="200 times larger inside"),
    ):
        while block := stream.read(1 << 16):
            read += len(block)
    assert read <= 4 << 20, "what was read of the file, 200 times"
    with open_unpacked(path) as stream:
        assert len(stream.read()) == 50 << 20, "harmless"


def test_a_line_has_a_limit() -> None:
    assert list(lines_of(io.BytesIO(b"123\n45"), 4)) == [b"123\n", b"45"]
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        list(lines_of(io.BytesIO(b"1\n12345"), 4))


def test_a_zip_archive_in_proportion() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1 << 20))
    check_zip(file, harmless_bytes=1 << 20)
    assert file.tell() == 0
    with pytest.raises(BombError, match="its members have 1048576 bytes"):
        check_zip(file, harmless_bytes=1000)
    with pytest.raises(zipfile.BadZipFile):
        check_zip(io.BytesIO(b"none"), harmless_bytes=1000)
