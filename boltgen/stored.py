"""The user's measurements: a database of their own, and the databases that boltgen ships."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from boltgen.arch import Arch
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.errors import DatabaseError, ToolchainError
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import DeviceIdentity
from boltgen.paths import shipped_records
from boltgen.settings import Settings
from boltgen.tuning.choice.measured_costs import MeasuredCosts
from boltgen.tuning.choice.select import Measurements, ModelCosts
from boltgen.tuning.database.database import FILE_NAME, Database
from boltgen.tuning.database.records import spec_key
from boltgen.tuning.rest.records import RestTimes

_log = logging.getLogger(__name__)

# Choosing kernels does not wait for a writer for long: it can do without.
_PATIENCE_S = 5.0


def database_path(settings: Settings) -> Path:
    """The user's database; it need not exist."""
    return settings.data_dir / FILE_NAME


def lock_folder(settings: Settings) -> Path:
    """Return the folder of locks of sessions that share a device."""
    return settings.data_dir / "locks"


def own_compilers(settings: Settings) -> Toolchain | None:
    """Return the compilers of this machine, or None if one is missing."""
    try:
        return find_toolchain(settings)
    except ToolchainError:
        return None


def own_toolchain(settings: Settings) -> str | None:
    """Return the toolchain that records of kernels compiled here name; None without compiler."""
    tools = own_compilers(settings)
    return toolchain_text(tools) if tools else None


def learn_contents(kernels: Mapping[KernelSpec, str], tools: Toolchain, settings: Settings) -> None:
    """Record the contents of compiled kernels in the user's database; warn on failure."""
    try:
        with Database(database_path(settings), examine=False, timeout_s=_PATIENCE_S) as database:
            database.learn(kernels, toolchain_text(tools))
    except DatabaseError as error:
        _log.warning("what kernels were compiled to is forgotten: %s", error)


@contextmanager
def stored_costs(
    arch: Arch,
    tools: Toolchain,
    settings: Settings,
    device: DeviceIdentity | None = None,
    compiled: Mapping[KernelSpec, str] | None = None,
    *,
    only_compiled: bool = False,
) -> Iterator[MeasuredCosts]:
    """Yield costs from all measurements with `tools`, on `device` first; else the model's.

    For `compiled` kernels only records of these contents count. For other kernels the records of
    the newest content in the user's own database count, in all databases; with `only_compiled` none
    do. A database that cannot be read is skipped with a warning.
    """
    paths = [database_path(settings), *shipped_records()]
    with ExitStack() as stack:
        databases = []
        contents: dict[str, str] = {}
        for path in filter(Path.is_file, paths):
            try:
                database = Database(
                    path,
                    read_only=not _is_writable(path),
                    examine=False,
                    timeout_s=_PATIENCE_S,
                )
            except DatabaseError as error:
                _log.warning("measurements are not used: %s", error)
                continue
            databases.append(stack.enter_context(database))
            if path == database_path(settings):
                contents = _contents(database)
        toolchain = toolchain_text(tools)
        for spec, content in (compiled or {}).items():
            contents[spec_key(spec, toolchain)] = content
        fallback = ModelCosts(arch)
        confirmed = (compiled or {}) if only_compiled else None
        yield MeasuredCosts(
            databases, arch, toolchain, device, fallback, contents, confirmed=confirmed
        )


def _contents(database: Database) -> dict[str, str]:
    try:
        return database.contents()
    except DatabaseError as error:
        _log.warning("what kernels were compiled to is not known: %s", error)
        return {}


@contextmanager
def stored_rest(
    arch: Arch, toolchain: str, settings: Settings, device: DeviceIdentity | None = None
) -> Iterator[Callable[[str], RestTimes | None]]:
    """Yield the user's measurements of TVM's own kernels by identity, on `device` first.

    A database that cannot be read is passed over with a warning.
    """
    path = database_path(settings)
    if not path.is_file():
        yield lambda task: None
        return
    try:
        opened = Database(path, examine=False, timeout_s=_PATIENCE_S)
    except DatabaseError as error:
        _log.warning("measurements are not used: %s", error)
        yield lambda task: None
        return
    with opened as database:
        yield lambda task: database.rest.times(task, arch.name, toolchain, device)


def rest_stamp(arch: Arch, settings: Settings) -> str:
    """Return a text that changes whenever there may be other times of TVM's own kernels."""
    path = database_path(settings)
    if not path.is_file():
        return ""
    try:
        with Database(path, examine=False, timeout_s=_PATIENCE_S) as database:
            return database.rest.stamp(arch.name)
    except DatabaseError:  # whoever opens it for the times says so
        return ""


@contextmanager
def stored_measurements(
    arch: Arch, tools: Toolchain | None, settings: Settings, device: DeviceIdentity | None = None
) -> Iterator[Sequence[Measurements]]:
    """Yield the measurements with `tools`, on `device` first; empty without compilers."""
    if tools is None:
        yield ()
        return
    with stored_costs(arch, tools, settings, device) as costs:
        yield costs.measurements


def _is_writable(path: Path) -> bool:
    """Return whether SQLite can write the file, and bring it to the newest schema."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
