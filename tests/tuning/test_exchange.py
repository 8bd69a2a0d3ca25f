"""Files of records: what is written is read, and a fault names file, line and field."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from boltgen.errors import RecordError
from boltgen.tuning.database.exchange import read_records, write_records
from boltgen.tuning.database.records import to_line
from tests.tuning.samples import NO_LAUNCH, record

RECORDS = [record(20.0), record(NO_LAUNCH, after_s=1), record(30.0, after_s=2)]


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz", "r"])
def test_records_come_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write_records(path, RECORDS) == 3
    assert list(read_records(path)) == RECORDS
    assert [child.name for child in tmp_path.iterdir()] == [name]
    is_packed = path.read_bytes()[:2] == b"\x1f\x8b"
    assert is_packed == name.endswith(".gz")
    assert write_records(path, []) == 0
    assert list(read_records(path)) == []


def test_files_can_be_concatenated_and_have_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    path.write_text(to_line(RECORDS[0]) + "\n\n" + to_line(RECORDS[1]))
    assert list(read_records(path)) == RECORDS[:2]


def test_a_bad_line_is_named_with_its_field(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    bad = to_line(RECORDS[1]).replace('"reason"', '"why"')
    path.write_text(f"{to_line(RECORDS[0])}\n\n{bad}\n")
    lines = read_records(path)
    assert next(lines) == RECORDS[0]
    with pytest.raises(RecordError, match=r"r\.jsonl, line 3: outcome\.why: Failure has no such"):
        next(lines)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    with pytest.raises(RecordError, match=r"r\.jsonl\.gz cannot be read: No such file"):
        list(read_records(path))
    path.write_bytes(b"no gzip")
    with pytest.raises(RecordError, match=r"cannot be read: Not a gzipped file"):
        list(read_records(path))
    packed = gzip.compress("\n".join(map(to_line, RECORDS)).encode())
    path.write_bytes(packed[:-12])
    with pytest.raises(RecordError, match=r"cannot be read: Compressed file ended before"):
        list(read_records(path))
    path.write_bytes(packed[:40] + b"\xff" * 40 + packed[80:])
    with pytest.raises(RecordError, match=r"r\.jsonl\.gz"):
        list(read_records(path))
    plain = tmp_path / "latin.jsonl"
    plain.write_bytes(to_line(RECORDS[0]).encode() + b"\n\xe9\n")
    with pytest.raises(RecordError, match=r"latin\.jsonl, line \d: not UTF-8"):
        list(read_records(plain))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_records(path, RECORDS[:1])

    def breaking():
        yield RECORDS[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(path, breaking())
    assert list(read_records(path)) == RECORDS[:1]
    with pytest.raises(RecordError, match=r"x/r\.jsonl cannot be written: No such file"):
        write_records(tmp_path / "x" / "r.jsonl", RECORDS)


def test_another_compression_is_said_to_be_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.zst"
    with pytest.raises(RecordError, match=r"r\.jsonl\.zst: zst is not read.*ends in .*\.jsonl\.gz"):
        list(read_records(path))
    with pytest.raises(RecordError, match=r"r\.jsonl\.zst: zst is not read or written"):
        write_records(path, RECORDS)
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress((b" " * 1023 + b"\n") * (80 << 10)))
    with pytest.raises(RecordError, match=r"r\.jsonl\.gz, line \d+: .*200 times larger inside"):
        list(read_records(path))
    path.write_bytes(gzip.compress(b"x" * (2 << 20)))
    with pytest.raises(RecordError, match=r"line 1: the line is longer than 1048576 bytes"):
        list(read_records(path))


def test_a_pipe_is_no_file_of_records(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordError, match="pipe cannot be read: it is a pipe or a device"):
        list(read_records(tmp_path / "pipe"))
