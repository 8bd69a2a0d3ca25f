"""A content-addressed cache in a folder that several processes share.

    <root>/<kind>/<key[:2]>/<key>/    an entry: its files and `manifest.json`, written last
    <root>/locks/                     one lock per entry under construction
    <root>/building/                  entries under construction, each in a folder with a lock
    <root>/failed/                    sources and logs of what did not compile

An entry is built in `building/` and renamed into place, so it is there whole or not at all,
whenever a build is killed. The manifest holds a SHA-256 of each file; an entry that does not match
is rebuilt, and a warning says so. The folder belongs to one user: code that another user could
write is never loaded. Entries are copied from folders that the user shares with others instead of
being built; see `build.library.shared`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from filelock import FileLock

from boltgen.errors import CacheError
from boltgen.intake.files import open_regular
from boltgen.intake.json_text import JsonError, read_json

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
# In the folder of an entry under construction: the builder's lock, and the entry's files.
_LOCK, _FILES = "lock", "files"
_CHOOSE_ANOTHER = "set BOLTGEN_CACHE_DIR to a folder of your own"


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry; `built` tells whether this call built it."""

    folder: Path
    built: bool


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Raise CacheError, with a remedy, for an operating system's error under `folder`."""
    try:
        yield
    except OSError as error:
        raise disk_error(folder, error) from error


def disk_error(folder: Path, error: OSError) -> CacheError:
    """Return the CacheError for `error`, with a remedy."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return CacheError(
                f"cache folder {folder}: no space left ({error.strerror}); nothing half-written "
                f"was kept; free some space, or {_CHOOSE_ANOTHER}"
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return CacheError(
                f"cache folder {folder} is not writable ({error.strerror}: {error.filename}); "
                f"make it writable for you, or {_CHOOSE_ANOTHER}"
            )
        case _:
            return CacheError(f"cache folder {folder} cannot be used: {error}; {_CHOOSE_ANOTHER}")


class Cache:
    """The cache under `root`, which is created with mode 0700.

    The folders `shared` have entries, too, and are only read: an entry that is missing is copied
    from the first that has it.

    Raises:
        CacheError: `root` cannot be created or written, belongs to another user, or other users can
            write it.
    """

    def __init__(self, root: Path, shared: Sequence[Path] = ()) -> None:
        self.root = root
        self._shared = tuple(shared)
        with disk_errors(root):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            for name in ("locks", "building", "failed"):
                (root / name).mkdir(mode=0o700, exist_ok=True)
            if not os.access(root / "building", os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root))
            self._sweep()

    def _check_owner(self) -> None:
        status = self.root.stat()
        user = os.geteuid()
        if status.st_uid != user:
            raise CacheError(
                f"cache folder {self.root} belongs to user {status.st_uid}, you are user {user}: "
                f"code that another user can change is not loaded; {_CHOOSE_ANOTHER}"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheError(
                f"cache folder {self.root} is writable for other users (mode "
                f"{stat.S_IMODE(status.st_mode):o}): code that another user can change is not "
                f"loaded; `chmod 700 {self.root}`, or {_CHOOSE_ANOTHER}"
            )

    def _sweep(self) -> None:
        """Remove the leftovers of killed builds: unlocked ones, since clocks can jump."""
        for folder in (self.root / "building").iterdir():
            if not _is_scratch(folder):  # not made by boltgen
                continue
            held = _hold(folder)
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)

    def folder(self, kind: str, key: str) -> Path:
        """Return the folder of the entry, whether it exists or not."""
        return entry_folder(self.root, kind, key)

    def has(self, kind: str, key: str) -> bool:
        """Return whether the entry is there and whole, here or in a shared folder."""
        return any(
            _damage(entry_folder(root, kind, key)) is None for root in (self.root, *self._shared)
        )

    def get_or_build(
        self, kind: str, key: str, build: Callable[[Path], None], holds: Sequence[str] = ()
    ) -> Entry:
        """Return the entry; if it is missing, `build` fills an empty folder with its files.

        An entry that lacks a file of `holds` is damaged. If several processes ask for one entry,
        one builds it and the others wait. An exception from `build` leaves no entry and is passed
        on.

        Raises:
            CacheError: the disk is full or the folder cannot be written.
        """
        folder = self.folder(kind, key)
        if _damage(folder, holds) is None:
            return Entry(folder, built=False)
        lock = FileLock(self.root / "locks" / f"{kind}-{key}.lock", mode=0o600)
        with disk_errors(self.root), lock:
            damage = _damage(folder, holds)
            if damage is None:  # another process has built it meanwhile
                return Entry(folder, built=False)
            if damage:
                _log.warning("cache entry %s is damaged (%s); it is built again", folder, damage)
            with self.scratch(kind) as scratch:
                is_copied = self._copy_shared(kind, key, holds, scratch)
                if not is_copied:
                    build(scratch)
                    seal(scratch)
                self._move_into_place(scratch, folder)
        return Entry(folder, built=not is_copied)

    def _copy_shared(self, kind: str, key: str, holds: Sequence[str], scratch: Path) -> bool:
        """Fill `scratch` from the first shared folder that has the entry; the copy is verified."""
        for root in self._shared:
            source = entry_folder(root, kind, key)
            if not os.path.lexists(source):
                continue
            try:
                shutil.copytree(source, scratch, symlinks=True, dirs_exist_ok=True)
                damage = _damage(scratch, holds)
            except (OSError, shutil.Error) as error:
                damage = f"it cannot be read: {error}"
            if damage is None:
                return True
            _log.warning("entry %s of a kernel library is not used: %s", source, damage)
            for each in scratch.iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        return False

    def find(self, kind: str, key: str, holds: Sequence[str] = ()) -> Path | None:
        """Return the folder of an entry if it is complete and has the files `holds`, else None.

        The entry counts as used now.
        """
        folder = self.folder(kind, key)
        damage = _damage(folder, holds)
        if damage is None:
            with contextlib.suppress(OSError):
                os.utime(folder)
            return folder
        if damage:
            _log.warning("cache entry %s is damaged (%s); it is built again", folder, damage)
        return None

    def put(self, kind: str, key: str, files: Path, most_bytes: int) -> None:
        """Copy the folder `files` into the cache as an entry.

        The least recently used entries of this kind are removed until the kind has at most
        `most_bytes`.

        Raises:
            CacheError: the disk is full or the folder cannot be written.
        """
        wanted = _size(files)
        if wanted > most_bytes:
            return
        lock = FileLock(self.root / "locks" / f"{kind}-{key}.lock", mode=0o600)
        with disk_errors(self.root), lock, self.scratch(kind) as scratch:
            self._make_room(kind, most_bytes - wanted)
            shutil.copytree(files, scratch, dirs_exist_ok=True)
            seal(scratch)
            self._move_into_place(scratch, self.folder(kind, key))

    def _make_room(self, kind: str, most_bytes: int) -> None:
        entries = []
        for entry in (self.root / kind).glob("??/*"):
            if not (entry / _MANIFEST).is_file():  # not made by boltgen
                continue
            with contextlib.suppress(FileNotFoundError):  # another process may be removing it
                entries.append((entry.stat().st_mtime, entry))
        total = 0
        for _, entry in sorted(entries, reverse=True):
            total += _size(entry)
            if total > most_bytes:
                with self.scratch("old") as old, contextlib.suppress(FileNotFoundError):
                    entry.rename(old / "entry")

    @contextmanager
    def scratch(self, kind: str) -> Iterator[Path]:
        """Yield an empty folder on the cache's file system, and remove it afterwards."""
        held = None
        while held is None:  # another process's sweep can remove a folder before it is locked
            folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.root / "building"))
            held = _hold(folder)
        try:
            files = folder / _FILES
            files.mkdir(mode=0o700)
            yield files
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)

    def keep_failed(self, scratch: Path, key: str) -> Path:
        """Move a failed build to a folder that the user can read; return the folder."""
        target = self.root / "failed" / key
        with disk_errors(self.root):
            self._move_into_place(scratch, target)
        return target

    def _move_into_place(self, scratch: Path, target: Path) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(
            target
        ):  # an entry is in the way, damaged or failed: a rename cannot replace a full folder
            with self.scratch("old") as old:
                target.rename(old / "entry")
        scratch.rename(target)


def _is_scratch(folder: Path) -> bool:
    """Return whether a folder has only the contents that `scratch` makes."""
    try:
        return {each.name for each in folder.iterdir()} <= {_LOCK, _FILES}
    except OSError:  # it is not a folder, or another process has removed it
        return False


def _hold(folder: Path) -> int | None:
    """Lock a folder under construction; return the lock's file descriptor, which holds the lock.

    Return None if another process holds the lock, or if the folder is gone.
    """
    try:
        number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(number), (folder / _LOCK).stat()):
            return number
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    return None


def _sha256(path: Path) -> str:
    state = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def entry_folder(root: Path, kind: str, key: str) -> Path:
    """Return the folder of an entry in a cache or a shared folder, whether it exists or not."""
    return root / kind / key[:2] / key


def seal(folder: Path) -> None:
    """Write the manifest of an entry's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {"files": {str(path.relative_to(folder)): _sha256(path) for path in files}}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _damage(folder: Path, holds: Sequence[str] = ()) -> str | None:
    """Describe the damage of an entry: None if it is undamaged, "" if it is absent."""
    if not os.path.lexists(folder):
        return ""
    try:
        files = _declared(folder)
        if absent := [name for name in holds if name not in files]:
            return f"{absent[0]} is missing"
        for name, expected in files.items():
            if _sha256(folder / name) != expected:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{Path(error.filename or folder).name} cannot be read: {error.strerror}"
    except JsonError:
        return f"{_MANIFEST} cannot be read"
    return None


def _declared(folder: Path) -> dict[str, str]:
    """Return the names of an entry's files, at least one, with their SHA-256."""
    form = read_json(folder / _MANIFEST)
    files = form.get("files") if isinstance(form, dict) else None
    if not isinstance(files, dict) or not files:
        raise JsonError("it names no files")
    for name, digest in files.items():
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or "/" in parts[0] or "\0" in name:
            raise JsonError("it names a file elsewhere")
        if not isinstance(digest, str):
            raise JsonError("a file has no digest")
    return files
