"""Allow one session at a time on a device, because two would disturb each other's times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from boltgen.errors import TuningError


@contextmanager
def device_lock(
    name: str | None, folder: Path, *, wait: bool, tell: Callable[[str], None]
) -> Iterator[None]:
    """Hold the lock of device `name` during the `with` block; None needs no lock.

    If another session holds the lock, `tell` is called once, and this session waits or fails. The
    operating system releases the lock at any end of the process.

    Raises:
        TuningError: another session holds the lock and `wait` is false, or the folder is not
            writable.
    """
    if name is None:
        yield
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".lock"), mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise TuningError(
                    f"another session is measuring on {name}: two would disturb each other; wait "
                    "for it to end"
                ) from None
            tell(f"another session is measuring on {name}; waiting for it to end")
            lock.acquire()
    except OSError as error:
        raise TuningError(
            f"the folder of device locks {folder} cannot be used ({error.strerror}); set "
            "BOLTGEN_DATA_DIR to a folder of your own"
        ) from error
    try:
        yield
    finally:
        lock.release()
