"""Compressed files from outside: a small file that would unpack to a huge one is refused."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from boltgen.intake.files import open_regular

# Records shrink to a twentieth and machine code to a fifth; deflate's best is a thousandth.
MOST_RATIO = 200
# Less than this is taken at any ratio: it harms nobody.
HARMLESS_BYTES = 64 << 20
_GZIP = b"\x1f\x8b"


class BombError(ValueError):
    """A compressed file that is far larger inside than anything that boltgen writes."""


class _Guarded(io.RawIOBase):
    """The bytes in a compressed stream, while they are in proportion to the bytes read."""

    def __init__(self, packed: BinaryIO, harmless_bytes: int) -> None:
        super().__init__()
        self._packed = packed
        self._stream = gzip.GzipFile(fileobj=packed, mode="rb")
        self._harmless_bytes = harmless_bytes
        self._given = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill `buffer`, as far as bytes are left.

        Raises:
            BombError: the contents are out of proportion.
        """
        count = self._stream.readinto(buffer)
        self._given += count
        if self._given > max(self._harmless_bytes, MOST_RATIO * self._packed.tell()):
            raise BombError(
                f"it is more than {MOST_RATIO} times larger inside than packed: no file of "
                "boltgen's is"
            )
        return count


@contextmanager
def open_unpacked(path: Path, harmless_bytes: int = HARMLESS_BYTES) -> Iterator[BinaryIO]:
    """Open a regular file, unpacked if its contents or its name say that it is packed.

    Raises:
        OSError: it is no regular file, or cannot be read.
        BombError: at the read that finds it out of proportion.
    """
    with open_regular(path) as file:
        is_packed = file.read(len(_GZIP)) == _GZIP or path.suffix == ".gz"
        file.seek(0)
        yield io.BufferedReader(_Guarded(file, harmless_bytes), 1 << 16) if is_packed else file


def lines_of(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """The lines of a stream, one by one.

    Raises:
        ValueError: one is longer than `most_bytes`.
    """
    while line := stream.readline(most_bytes + 1):
        if len(line) > most_bytes:
            raise ValueError(f"the line is longer than {most_bytes} bytes")
        yield line


def check_zip(file: BinaryIO, harmless_bytes: int) -> None:
    """Check the declared sizes of a zip archive's members; no member is larger than declared.

    Raises:
        BombError: they are out of proportion to the file.
        zipfile.BadZipFile: it is no zip archive.
    """
    with zipfile.ZipFile(file) as archive:
        inside = sum(member.file_size for member in archive.infolist())
    packed = file.seek(0, io.SEEK_END)
    file.seek(0)
    if inside > max(harmless_bytes, MOST_RATIO * packed):
        raise BombError(f"its members have {inside} bytes, the file has {packed}")
