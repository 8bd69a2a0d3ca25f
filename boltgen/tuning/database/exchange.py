"""Files of records for exchange: a JSON record per line, compressed if the name ends in .gz."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from boltgen.errors import RecordError
from boltgen.intake.files import written_whole
from boltgen.intake.unpacking import lines_of, open_unpacked
from boltgen.tuning.database.records import MOST_LINE_BYTES, Record, from_line, to_line

_GZIP = ".gz"
_BEGIN = b'{"format":"boltgen-record-'
# Rejected by name; otherwise such a file would be read, or written, as text.
_UNKNOWN = frozenset({".zst", ".xz", ".bz2", ".lz4", ".zip"})


def _check_name(path: Path) -> None:
    if path.suffix in _UNKNOWN:
        raise RecordError(
            f"{path.suffix[1:]} is not read or written here: give a name that ends in .jsonl or "
            ".jsonl.gz, and use its own program for the other"
        )


def _is_ours(file: BinaryIO) -> bool:
    """Return whether a file, compressed or not, begins with a record."""
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    try:
        begin = (gzip.GzipFile(fileobj=file) if packed else file).read(len(_BEGIN))
    except (OSError, EOFError, zlib.error):
        return False
    return begin == _BEGIN


def _created(path: Path) -> TextIO:
    if path.suffix == _GZIP:
        return cast(TextIO, gzip.open(path, "wt", encoding="utf-8"))
    return path.open("w", encoding="utf-8")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file one by one; empty lines are skipped.

    Raises:
        RecordError: the file cannot be read, expands to far more than its size, or has an invalid
            line; the message names file, line and field.
    """
    number = 0
    try:
        _check_name(path)
        with open_unpacked(path) as stream:
            number = 1
            for line in lines_of(stream, MOST_LINE_BYTES):
                if text := line.decode("utf-8").strip():
                    yield from_line(text)
                number += 1
    except RecordError as error:
        where = f"{path}, line {number}" if number else str(path)
        raise RecordError(f"{where}: {error}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
    except ValueError as error:
        raise RecordError(f"{path}, line {number}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordError(f"{path} cannot be read: {reason}") from error


def write_records(path: Path, records: Iterable[Record]) -> int:
    """Write records to a file, which appears complete or not at all; return their number.

    Raises:
        RecordError: the file cannot be written, or another program wrote it.
    """
    count = 0
    try:
        _check_name(path)
        with written_whole(path, _is_ours) as staged, _created(staged) as file:
            for record in records:
                file.write(to_line(record) + "\n")
                count += 1
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror or error}") from error
    return count
