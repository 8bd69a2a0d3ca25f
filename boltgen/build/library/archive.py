"""Export and import a kernel library as one file: compile on one machine, use on another.

    boltgen-library.json      version; per unit its key, and its files' sizes and hashes
    <key>/<file>              the units' files

The file is a compressed tar archive. An import reads it member by member, writes only names that
the manifest declares, verifies every hash, and adds a unit to the cache completely or not at all.
It runs nothing; but a later measurement runs the machine code in the units, so import only archives
that you trust.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from boltgen.build.cache import Cache
from boltgen.build.compile import ABOUT, LOG
from boltgen.build.library.kernels import KIND, OUTPUT, StoredUnit, read_about
from boltgen.build.nvcc.usage import usage_lines
from boltgen.errors import LibraryError
from boltgen.intake.files import written_whole
from boltgen.intake.json_text import parse_json
from boltgen.intake.unpacking import BombError, open_unpacked
from boltgen.ir.key import digest

_MANIFEST = "boltgen-library.json"
_VERSION = 1
_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
# A unit of eight kernels has two megabytes; a larger file cannot be part of a unit.
_MOST_FILE_BYTES = 256 << 20
_MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The result of an import: keys of the new units, and of units that were present."""

    added: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    size_bytes: int
    sha256: str


def export_library(units: Sequence[StoredUnit], path: Path) -> None:
    """Write `units` to the archive `path`, which appears complete or not at all.

    Raises:
        LibraryError: there are no units, or a file cannot be read or written.
    """
    if not units:
        raise LibraryError("there are no kernels to export; `boltgen library build` makes them")
    try:
        files = {unit.key: _files(unit) for unit in units}
        manifest = {
            "version": _VERSION,
            "units": {
                key: {
                    name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                    for name, content in contents.items()
                }
                for key, contents in files.items()
            },
        }
        # Without time stamps, so that equal libraries make equal archives.
        with (
            written_whole(path, _is_ours) as staged,
            staged.open("wb") as out,
            gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            _add(tar, _MANIFEST, json.dumps(manifest, indent=1).encode())
            for key, contents in files.items():
                for name, content in contents.items():
                    _add(tar, f"{key}/{name}", content)
    except OSError as error:
        reason = error.strerror or error
        raise LibraryError(f"the library cannot be written to {path}: {reason}") from error


def _is_ours(file: BinaryIO) -> bool:
    """Return whether a file is an archive whose first member is our manifest."""
    try:
        with tarfile.open(fileobj=gzip.GzipFile(fileobj=file), mode="r|") as tar:
            first = tar.next()
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return False
    return first is not None and first.name == _MANIFEST


def _files(unit: StoredUnit) -> dict[str, bytes]:
    sources = [path.name for path in unit.folder.glob("*.cu")]
    found = {name: (unit.folder / name).read_bytes() for name in (ABOUT, OUTPUT, *sorted(sources))}
    log = unit.folder / LOG
    said = usage_lines(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""
    return found | ({LOG: said.encode()} if said else {})


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def import_library(path: Path, cache: Cache) -> Import:
    """Add the units of an archive to the cache.

    Raises:
        LibraryError: the archive cannot be read, is damaged, or has a file that no library has; the
            message names it. Units before the damage are kept.
        CacheError: the cache cannot be written.
    """
    try:
        return _import(path, cache)
    except (tarfile.TarError, EOFError, zlib.error, OSError, BombError) as error:
        raise LibraryError(f"{path} is no kernel library, or is damaged: {error}") from error


def _import(path: Path, cache: Cache) -> Import:
    added: list[str] = []
    present: list[str] = []
    with open_unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        members = iter(tar)
        manifest = _read_manifest(path, tar, members)
        for key, declared in manifest.items():
            contents = {
                name: _read_member(path, tar, members, f"{key}/{name}", file)
                for name, file in declared.items()
            }
            _check_unit(path, key, contents)

            def write(folder: Path, contents: dict[str, bytes] = contents) -> None:
                for name, content in contents.items():
                    (folder / name).write_bytes(content)

            entry = cache.get_or_build(KIND, key, write, [ABOUT, OUTPUT])
            (added if entry.built else present).append(key)
        extra = next(members, None)
        if extra is not None:
            raise LibraryError(f"{path}: {extra.name!r} is not in its manifest")
    return Import(added=tuple(added), present=tuple(present))


def _read_manifest(
    path: Path, tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]
) -> dict[str, dict[str, _Declared]]:
    first = next(members, None)
    if first is None or first.name != _MANIFEST or not first.isreg():
        raise LibraryError(f"{path} is no kernel library: it does not begin with {_MANIFEST}")
    if first.size > _MOST_MANIFEST_BYTES:
        raise LibraryError(f"{path}: its manifest has {first.size} bytes")
    try:
        form = parse_json(_content(tar, first), _MOST_MANIFEST_BYTES)
        if form["version"] != _VERSION:
            raise LibraryError(
                f"{path} is of version {form['version']!r}, this boltgen reads {_VERSION}"
            )
        units = cast("dict[str, dict[str, Any]]", form["units"])
        manifest = {
            key: {
                name: _Declared(size_bytes=_whole(file["bytes"]), sha256=str(file["sha256"]))
                for name, file in files.items()
            }
            for key, files in units.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LibraryError(f"{path}: its manifest cannot be read: {error!r}") from error
    for key, files in manifest.items():
        if not _KEY.fullmatch(key):
            raise LibraryError(f"{path}: {key!r} is no unit's key")
        for name, declared in files.items():
            if not _NAME.fullmatch(name) or not 0 <= declared.size_bytes <= _MOST_FILE_BYTES:
                raise LibraryError(
                    f"{path}: a unit does not hold a file {name!r} of {declared.size_bytes} bytes"
                )
    return manifest


def _whole(value: object) -> int:
    if type(value) is not int:  # JSON's true is an int in Python
        raise TypeError(f"{value!r} is no number of bytes")
    return value


def _read_member(
    path: Path,
    tar: tarfile.TarFile,
    members: Iterator[tarfile.TarInfo],
    name: str,
    declared: _Declared,
) -> bytes:
    member = next(members, None)
    if member is None or member.name != name or not member.isreg():
        found = "nothing" if member is None else repr(member.name)
        raise LibraryError(f"{path} is damaged: {found} stands where {name} should")
    if member.size != declared.size_bytes:
        raise LibraryError(f"{path} is damaged: {name} does not have the size in its manifest")
    content = _content(tar, member)
    if hashlib.sha256(content).hexdigest() != declared.sha256:
        raise LibraryError(f"{path} is damaged: {name} is not what was exported")
    return content


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return stream.read() if stream else b""


def _check_unit(path: Path, key: str, contents: dict[str, bytes]) -> None:
    """Check that a unit's key fits its contents; a wrong key would return the wrong kernel."""
    sources = [content for name, content in contents.items() if name.endswith(".cu")]
    others = contents.keys() - {ABOUT, OUTPUT, LOG}
    if len(sources) != 1 or len(others) != 1 or not {ABOUT, OUTPUT} <= contents.keys():
        raise LibraryError(f"{path}: unit {key} holds {', '.join(sorted(contents))}")
    try:
        about = read_about(contents[ABOUT].decode())
        text = sources[0].decode()
    except UnicodeDecodeError as error:
        raise LibraryError(f"{path}: unit {key} is damaged: {error}") from error
    except LibraryError as error:
        raise LibraryError(f"{path}: unit {key}: {error}") from error
    if digest(KIND, text, ".cu", about.flags, about.toolchain) != key:
        raise LibraryError(f"{path}: unit {key} is not what its key says")
