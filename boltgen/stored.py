"""Where the user's measurements are: a database of their own, and those that boltgen ships."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from boltgen.arch import Arch
from boltgen.build.kernel_library import toolchain_text
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
    """Where sessions that share a device find each other."""
    return settings.data_dir / "locks"


def own_compilers(settings: Settings) -> Toolchain | None:
    """The compilers of this machine; None where one is missing."""
    try:
        return find_toolchain(settings)
    except ToolchainError:
        return None


def own_toolchain(settings: Settings) -> str | None:
    """What records of kernels compiled here name as their toolchain; None without a compiler."""
    tools = own_compilers(settings)
    return toolchain_text(tools) if tools else None


def learn_contents(kernels: Mapping[KernelSpec, str], tools: Toolchain, settings: Settings) -> None:
    """Remember what kernels were compiled to, if there is a database that can: a warning says so
    where there is none.
    """
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
    """Costs from all that was measured with `tools`, on `device` first; else the model's.

    Of `compiled` kernels only records of these contents count; of others those of the newest
    content that the user's own database knows, for all databases; or, with `only_compiled`, none.
    A database that cannot be read is passed over with a warning: the model does without.
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
    """What the user measured of TVM's own kernels, by their identities, on `device` first.

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
    """A text that changes whenever there may be other times of TVM's own kernels."""
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
    """What was measured with `tools`, on `device` first; nothing where there are no compilers."""
    if tools is None:
        yield ()
        return
    with stored_costs(arch, tools, settings, device) as costs:
        yield costs.measurements


def _is_writable(path: Path) -> bool:
    """Whether SQLite can open the file as it likes best, and bring it to the newest schema."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
