"""A folder of compiled kernels that machines share: `boltgen compile` copies objects from it.

    boltgen-kernels.json           the version, and each architecture with its toolchains
    <kind>/<key[:2]>/<key>/        an entry as in the cache: its files and `manifest.json`

The folder has the layout of the cache, and `Cache` reads it. Entries are found by their keys, which
cover everything that decides an object, so an entry of another toolchain, architecture or version
of boltgen is never taken by mistake. A manifest guards against damage, not against its author: an
object is machine code that will run, so share folders with people that you trust.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from boltgen.build.cache import Cache, entry_folder, seal
from boltgen.build.compile import LOG
from boltgen.build.nvcc.usage import usage_lines
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.errors import LibraryError
from boltgen.intake.files import read_regular
from boltgen.intake.json_text import MOST_BYTES, JsonError, parse_json

_log = logging.getLogger(__name__)

FILE = "boltgen-kernels.json"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The result of an export: numbers of entries that are new, and that were there."""

    added: int
    present: int


def export_shared(
    folder: Path, units: Iterable[TranslationUnit], arch: str, tools: Toolchain, cache: Cache
) -> Export:
    """Copy the outputs of `units` for `arch` from the cache to the shared `folder`.

    An entry appears whole or not at all; entries that are there stay.

    Raises:
        LibraryError: `folder` holds something else, or cannot be written, or the cache lacks a
            unit.
    """
    added = present = 0
    try:
        made_with = _read(folder) if (folder / FILE).exists() else {}
        if not made_with and folder.exists() and any(folder.iterdir()):
            raise LibraryError(
                f"{folder} holds other files and no {FILE}: give an empty or a new folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for unit in units:
            target = entry_folder(folder, unit.kind, unit.key)
            if target.exists():
                present += 1
                continue
            source = cache.find(unit.kind, unit.key, [unit.output, unit.source_name])
            if source is None:
                raise LibraryError(
                    f"{unit.kind} {unit.name} is not in the cache {cache.root}: compile the model "
                    "again with this toolchain, and without its cached result (reuse=False)"
                )
            _copy_entry(source, unit, target, folder)
            added += 1
        toolchains = {*made_with.get(arch, ()), tools.cuda_identity}
        made_with[arch] = tuple(sorted(toolchains))
        text = json.dumps({"version": _VERSION, "made_with": made_with}, indent=1) + "\n"
        with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=folder) as name:
            staged = Path(name) / FILE
            staged.write_text(text, encoding="utf-8")
            staged.replace(folder / FILE)
    except OSError as error:
        reason = error.strerror or error
        raise LibraryError(f"the library {folder} cannot be written: {reason}") from error
    return Export(added=added, present=present)


def _copy_entry(source: Path, unit: TranslationUnit, target: Path, folder: Path) -> None:
    """Copy an entry without the paths of this machine that its log and command have."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".boltgen-", dir=folder) as name:
        staged = Path(name) / "entry"
        staged.mkdir()
        for file in (unit.output, unit.source_name):
            shutil.copyfile(source / file, staged / file)
        log = source / LOG
        said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        (staged / LOG).write_text(usage_lines(said), encoding="utf-8")
        seal(staged)
        if not target.exists():  # another process exports, too
            staged.rename(target)


def shared_folders(folders: Sequence[Path], arch: str, tools: Toolchain) -> tuple[Path, ...]:
    """Return `folders` for `Cache`; warn of a library that cannot have an object for `arch`.

    Raises:
        LibraryError: one is no kernel library.
    """
    for folder in folders:
        made_with = _read(folder)
        toolchains = made_with.get(arch, ())
        if tools.cuda_identity not in toolchains:
            holds = "; ".join(f"{name} by {', '.join(by)}" for name, by in made_with.items())
            _log.warning(
                "the kernel library %s is not used: it holds kernels for %s, and this compilation "
                "is for %s by %s",
                folder,
                holds or "nothing",
                arch,
                tools.cuda_identity,
            )
    return tuple(folders)


def _read(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the toolchains of each architecture."""
    path = folder / FILE
    try:
        form = parse_json(read_regular(path, MOST_BYTES))
        version = form["version"]
        if version != _VERSION:
            raise LibraryError(
                f"the kernel library {folder} has version {version!r}, this boltgen reads "
                f"{_VERSION}: export it again"
            )
        return {str(arch): tuple(map(str, by)) for arch, by in form["made_with"].items()}
    except OSError as error:
        raise LibraryError(
            f"{folder} is no kernel library: {path} cannot be read ({error.strerror or error}); "
            "`boltgen library export` makes one"
        ) from error
    except (JsonError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LibraryError(f"{path} is damaged ({error}): export the library again") from error
