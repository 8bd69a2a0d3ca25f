"""Files from outside: regular ones are read up to a limit, and results are written whole.

A pipe would make a reader wait for ever, a device would feed it without end.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_regular(path: Path, most_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open the regular file `path` for reading.

    Raises:
        OSError: it is no regular file, has more than `most_bytes`, or cannot be opened.
    """
    # A pipe without a writer does not block an opener that does not wait.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(path, os.fstat(number), most_bytes)
    except OSError:
        os.close(number)
        raise
    with os.fdopen(number, "rb") as file:
        yield file


def require_regular(path: Path, status: os.stat_result, most_bytes: int | None = None) -> None:
    """Check by its `status` that `path` is a regular file.

    Raises:
        OSError: it is no regular file, or has more than `most_bytes`.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise OSError(
            errno.EFBIG, f"it has {status.st_size} bytes, more than {most_bytes}", str(path)
        )


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The contents of a regular file of at most `most_bytes`.

    Raises:
        OSError: it is no regular file, is larger, or cannot be read.
    """
    with open_regular(path, most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # it grew while it was read, or is one of the kernel's
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return content


@contextmanager
def written_whole(path: Path, is_ours: Callable[[BinaryIO], bool]) -> Iterator[Path]:
    """Yield a path to write to, which replaces `path` when the block ends without an error.

    A file that is there already is replaced if it is empty, or if `is_ours` finds by its content
    that boltgen wrote it; every other file is left as it is.

    Raises:
        OSError: the folder cannot be written, or `path` is no regular file, or is somebody else's.
    """
    require_replaceable(path, is_ours)
    # A short name: `path` may have the longest that the file system takes.
    with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=path.parent) as folder:
        staged = Path(folder) / f"staged{path.suffix}"
        yield staged
        staged.replace(path)


def require_replaceable(path: Path, is_ours: Callable[[BinaryIO], bool]) -> None:
    """Check that writing `path` loses nothing; see `written_whole`.

    Raises:
        OSError: `path` is no regular file, or holds what boltgen did not write.
    """
    if not os.path.lexists(path):
        return
    with open_regular(path) as file:
        if not file.read(1):
            return
        file.seek(0)
        if is_ours(file):
            return
    raise FileExistsError(
        errno.EEXIST,
        "it exists, and boltgen did not write it; it is left as it is: give another name",
        str(path),
    )
