"""The kernel library: kernels that are compiled once, several per translation unit, by key.

Each unit is an entry of the cache: its source, a shared library, and `about.json`, which names its
kernels. So a killed build resumes with the missing units. Kernels of another CUTLASS, nvcc or
boltgen have other keys.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.compile import ABOUT, LOG
from boltgen.build.nvcc.headers import kernel_headers_digest
from boltgen.build.nvcc.usage import KernelUsage, kernel_usage
from boltgen.build.pool import compile_all
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompileFailure, TranslationUnit, library_unit, with_kernel_headers
from boltgen.codegen.nvcc import device_flags
from boltgen.errors import LibraryError
from boltgen.families.source import (
    headers_of,
    kernel_body,
    kernel_symbol,
    render_library,
)
from boltgen.intake.files import read_regular
from boltgen.intake.json_text import MOST_BYTES, parse_json
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key import digest

_log = logging.getLogger(__name__)

KIND = "library"
OUTPUT = "kernels.so"
_ABOUT_VERSION = 1

# Measured by benchmarks/library.py: eight kernels per unit save most of the time for parsing
# CUTLASS, and a unit takes seconds, so that all cores stay busy and a killed build loses little.
KERNELS_PER_UNIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryKernel:
    """A kernel of a unit; `config` describes its configuration for people."""

    key: str
    symbol: str
    family: str
    config: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The contents of a unit's `about.json`; `toolchain` is the identity of the unit's tools."""

    version: int
    arch: str
    toolchain: str
    flags: tuple[str, ...]
    kernels: tuple[LibraryKernel, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its kernels; only one, if boltgen made the unit."""
        return tuple(sorted({kernel.family for kernel in self.kernels}))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUnit:
    """A unit in the cache, of any toolchain."""

    key: str
    folder: Path
    about: About

    @property
    def size_bytes(self) -> int:
        """The size of its shared library; 0 if it is missing."""
        path = self.folder / OUTPUT
        return path.stat().st_size if path.is_file() else 0

    @property
    def usage(self) -> dict[str, KernelUsage]:
        """Return ptxas's report by symbol; empty for a unit of PTX alone."""
        return kernel_usage(self.folder / LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryBuild:
    """The result of a build: the numbers of units made and found, and the failures."""

    made: int
    found: int
    failures: tuple[CompileFailure, ...]


@lru_cache(maxsize=65536)
def kernel_key(spec: KernelSpec, tools: Toolchain) -> str:
    """Return a digest of a kernel's text, headers, flags and compilers: its device code's identity.

    The key does not depend on the unit.
    """
    return digest(
        kernel_body(spec),
        _headers_digest(_includes(headers_of(spec)), tools.templates),
        device_flags(spec.arch, tools.device_code),
        tools.device_identity,
    )


@lru_cache(maxsize=64)
def _headers_digest(includes: str, folder: Path) -> str:
    return kernel_headers_digest(includes, folder)


def toolchain_text(tools: Toolchain) -> str:
    """Return the tools' identity for records; a kernel's content covers boltgen's headers."""
    return tools.device_identity


def is_current(unit: StoredUnit, tools: Toolchain) -> bool:
    """Return whether these tools and headers would compile a unit's kernels to the same code."""
    sources = [path.read_text(encoding="utf-8") for path in unit.folder.glob("*.cu")]
    made = {with_kernel_headers(tools.device_identity, text, tools) for text in sources}
    return made == {unit.about.toolchain}


def _includes(names: Iterable[str]) -> str:
    return "\n".join(f'#include "{name}"' for name in sorted(set(names)))


def unit_of(specs: Sequence[KernelSpec], tools: Toolchain) -> TranslationUnit:
    """Return the translation unit of the kernels `specs`, all for one architecture."""
    (arch,) = {spec.arch for spec in specs}
    kernels = tuple(
        LibraryKernel(
            key=kernel_key(spec, tools),
            symbol=kernel_symbol(spec),
            family=spec.family,
            config=str(spec.config),
        )
        for spec in specs
    )
    name = f"{arch}_{specs[0].family}_{specs[0].config}_and_{len(specs) - 1}_more"
    unit = library_unit(name, render_library(specs), arch, "", tools)
    about = About(
        version=_ABOUT_VERSION,
        arch=arch,
        toolchain=unit.identity,
        flags=unit.flags,
        kernels=kernels,
    )
    return library_unit(name, unit.text, arch, json.dumps(asdict(about), indent=1) + "\n", tools)


def chunks(specs: Sequence[KernelSpec], most: int = KERNELS_PER_UNIT) -> list[list[KernelSpec]]:
    """Split `specs` in order into as few parts of at most `most` as possible, nearly equal."""
    count = -(-len(specs) // most)
    bounds = [len(specs) * i // count for i in range(count + 1)] if count else []
    return [list(specs[a:b]) for a, b in itertools.pairwise(bounds)]


def build_library(
    groups: Iterable[Sequence[KernelSpec]],
    tools: Toolchain,
    cache: Cache,
    *,
    jobs: int,
    reporter: Reporter | None = None,
) -> LibraryBuild:
    """Compile the missing kernels of `groups`; a unit never has kernels of two groups.

    If a unit fails, its kernels are compiled one by one, so that a bad kernel costs only itself.

    Raises:
        CacheError: the disk is full or the cache cannot be written.
        ToolchainError: a compiler cannot be started.
    """
    parts = [part for group in groups for part in chunks(group)]
    units = [unit_of(part, tools) for part in parts]
    outcomes = compile_all(units, cache, jobs=jobs, reporter=reporter, title="kernel library")
    failed = {o.unit.key: o for o in outcomes if isinstance(o, CompileFailure)}
    broken = [
        (part, failed[unit.key])
        for part, unit in zip(parts, units, strict=True)
        if unit.key in failed
    ]
    alone = [unit_of([spec], tools) for part, _ in broken if len(part) > 1 for spec in part]
    retried = compile_all(alone, cache, jobs=jobs, reporter=reporter, title="kernels one by one")
    good = [o for o in (*outcomes, *retried) if not isinstance(o, CompileFailure)]
    return LibraryBuild(
        made=sum(not compiled.cached for compiled in good),
        found=sum(compiled.cached for compiled in good),
        failures=tuple(
            o
            for o in (*(f for part, f in broken if len(part) == 1), *retried)
            if isinstance(o, CompileFailure)
        ),
    )


def stored_units(cache: Cache) -> list[StoredUnit]:
    """Return all units in the cache, of any toolchain, except unreadable ones."""
    found = []
    for path in sorted((cache.root / KIND).glob(f"??/*/{ABOUT}")):
        try:
            about = read_about(read_regular(path, MOST_BYTES))
        except (OSError, LibraryError) as error:
            _log.warning("library unit %s is passed over: %s", path.parent, error)
            continue
        found.append(StoredUnit(key=path.parent.name, folder=path.parent, about=about))
    return found


def read_about(text: str | bytes) -> About:
    """Parse an `about.json`.

    Raises:
        LibraryError: the text is damaged, or another version of boltgen wrote it.
    """
    try:
        form = parse_json(text)
        version = form["version"]
        if version != _ABOUT_VERSION:
            raise LibraryError(
                f"{ABOUT} has version {version!r}, this boltgen reads {_ABOUT_VERSION}"
            )
        kernels = tuple(
            LibraryKernel(**{name: str(kernel[name]) for name in LibraryKernel.__slots__})
            for kernel in form["kernels"]
        )
        return About(
            version=version,
            arch=str(form["arch"]),
            toolchain=str(form["toolchain"]),
            flags=tuple(map(str, form["flags"])),
            kernels=kernels,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LibraryError(f"{ABOUT} cannot be read: {error!r}") from error


class KernelStore:
    """The kernels of all units that the cache has at construction, by key."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._units = {
            kernel.key: unit.key for unit in stored_units(cache) for kernel in unit.about.kernels
        }
        self._verified: dict[str, Path | None] = {}

    def find(self, key: str) -> Path | None:
        """Return the verified shared library that has the kernel with this key, or None."""
        unit = self._units.get(key)
        if unit is None:
            return None
        if unit not in self._verified:
            folder = self._cache.find(KIND, unit, [OUTPUT])
            self._verified[unit] = folder / OUTPUT if folder else None
        return self._verified[unit]
