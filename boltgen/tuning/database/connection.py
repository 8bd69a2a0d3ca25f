"""Open a database file: create, migrate or set it aside, or explain why that is impossible."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from boltgen.errors import DatabaseError
from boltgen.intake.files import open_regular
from boltgen.tuning.database.schema import (
    APPLICATION,
    SCHEMA,
    belongs_to_boltgen,
    differing,
    migrate,
    version,
)

_log = logging.getLogger(__name__)

_LOCKED = "another process holds it locked ({}); wait for it to end, or end it"
_ELSEWHERE = "set BOLTGEN_DATA_DIR to another folder, or give another --database"
# Files that SQLite keeps beside the database while it is in use.
_COMPANIONS = ("-wal", "-shm")
_LOCK = ".lock"
# The first bytes of a database file; the application's number is at a fixed offset.
_MAGIC = b"SQLite format 3\0"
_OWNER = slice(68, 72)
_HEADER_BYTES = 100


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection in autocommit mode; `set_aside` is the new path of a damaged file, if any."""

    connection: sqlite3.Connection
    set_aside: Path | None = None


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """Raise DatabaseError, with a remedy, for SQLite's errors on `path`."""
    try:
        yield
    except sqlite3.Error as error:
        raise DatabaseError(f"database {path}: {_explain(error)}") from error
    except UnicodeEncodeError as error:
        raise DatabaseError(
            f"database {path}: a text that was asked for is no UTF-8: {error.object!a}"
        ) from error
    except Timeout as error:
        raise DatabaseError(f"database {path}: {_LOCKED.format('being opened')}") from error
    except OSError as error:
        reason = error.strerror or error
        raise DatabaseError(f"database {path} cannot be used ({reason}); {_ELSEWHERE}") from error


def _explain(error: sqlite3.Error) -> str:
    # Python has error codes by name only from 3.11 on; the texts are stable since SQLite 3.
    text = str(error)
    if "locked" in text or "busy" in text:
        return _LOCKED.format(text)
    if "readonly" in text:
        return f"it is read-only; make it writable for you, or {_ELSEWHERE}"
    if "full" in text:
        return (
            f"no space left ({text}); what was written before is kept; free some space, or "
            f"{_ELSEWHERE}"
        )
    if _is_damage(error):
        return f"it is damaged ({text}); `boltgen db stats` sets it aside and begins a new one"
    return f"{text}; {_ELSEWHERE}"


def _is_damage(error: sqlite3.Error) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


def open_file(path: Path, *, read_only: bool, examine: bool, timeout_s: float) -> Opened:
    """Open `path`; unless `read_only`, create it or migrate it to this version's schema first.

    A damaged file is neither repaired nor deleted: it is renamed, and a new one replaces it; with
    `read_only` it is an error. With `examine` the whole file is checked, which takes two seconds
    for a million records; otherwise damage may be found later.

    Raises:
        DatabaseError: the file is locked for longer than `timeout_s`, is read-only, has a newer
            schema, is not boltgen's or not a regular file, or the disk is full.
    """
    with database_errors(path):
        _require_ours(path)
        if read_only:
            connection = _connect_read_only(path, timeout_s)
            if examine and _is_damaged(connection, examine):
                connection.close()
                raise DatabaseError(f"database {path}: it is damaged; it is left as it is")
            return Opened(_checked(connection, path, oldest=SCHEMA))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only one process at a time creates, migrates or sets aside a file.
        lock = path.with_name(path.name + _LOCK)
        if lock.exists() and (not lock.is_file() or lock.stat().st_size):
            raise DatabaseError(
                f"database {path}: {lock} is not boltgen's lock, and would be emptied; move it "
                "away, or give another --database"
            )
        with FileLock(lock, timeout=timeout_s, mode=0o600):
            aside = None
            connection = _connect(path, timeout_s)
            if _is_damaged(connection, examine):
                connection.close()
                aside = _set_aside(path)
                connection = _connect(path, timeout_s)
            _checked(connection, path, oldest=0)
            # The first write marks the file as boltgen's in its header, not only in a companion
            # file.
            if version(connection) == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
            # Readers continue while one process writes, and a killed writer leaves no partial
            # record.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            if version(connection) < SCHEMA:
                migrate(connection)
            return Opened(connection, aside)


def _require_ours(path: Path) -> None:
    """Check by its header, before any change, that a file is boltgen's or empty.

    Raises:
        DatabaseError: another program wrote the file.
        OSError: it is not a regular file, or cannot be read.
    """
    if not path.exists():
        return
    with open_regular(path) as file:  # SQLite would wait for a pipe
        header = file.read(_HEADER_BYTES)
    if not header or int.from_bytes(header[_OWNER], "big") == APPLICATION:
        return
    log = path.with_name(path.name + _COMPANIONS[0])
    if header.startswith(_MAGIC) and log.is_file() and log.stat().st_size:
        # A killed writer of an older version may have left its number in the log only.
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            closing(_connect_read_only(path, 0.0)) as connection,
        ):
            if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION:
                return
    kind = "another program's database" if header.startswith(_MAGIC) else "no database"
    raise DatabaseError(f"{path} is {kind}; it is left as it is: give another --database")


def _connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    path.chmod(0o600)
    return connection


def _connect_read_only(path: Path, timeout_s: float) -> sqlite3.Connection:
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    location = path.absolute().as_uri()
    connection = sqlite3.connect(
        f"{location}?mode=ro", timeout=timeout_s, isolation_level=None, uri=True
    )
    with contextlib.suppress(sqlite3.OperationalError):
        version(connection)
        return connection
    # If SQLite cannot write companions to the folder, nobody else writes there either.
    connection.close()
    return sqlite3.connect(f"{location}?immutable=1", isolation_level=None, uri=True)


def _is_damaged(connection: sqlite3.Connection, examine: bool) -> bool:
    try:
        if examine:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
        belongs_to_boltgen(connection)  # reads the header and the list of tables
        return False
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            return True
        raise


def _set_aside(path: Path) -> Path:
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.stem}.damaged-{now}{path.suffix}")
    for companion in ("", *_COMPANIONS):
        part = path.with_name(path.name + companion)
        if part.exists():
            part.rename(aside.with_name(aside.name + companion))
    _log.warning("database %s is damaged; it was moved to %s, a new one is begun", path, aside)
    return aside


def _checked(connection: sqlite3.Connection, path: Path, oldest: int) -> sqlite3.Connection:
    """Return `connection` if its file is boltgen's and has a version that this code reads."""
    found = version(connection)
    problem = ""
    if not belongs_to_boltgen(connection):
        problem = "it is a database of another program, and is left as it is"
    elif found > SCHEMA:
        problem = (
            f"it has schema {found}, written by a newer boltgen; this one reads up to {SCHEMA}: "
            "install the newer one"
        )
    elif found < oldest:
        problem = f"it has schema {found}, and is too old to be read without changing it"
    elif different := differing(connection, found):
        problem = f"its tables are not what boltgen makes: {different}; it is not trusted"
    if problem:
        connection.close()
        raise DatabaseError(f"database {path}: {problem}; or {_ELSEWHERE}")
    return connection
