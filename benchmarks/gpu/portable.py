"""Where a bundle's libraries can be loaded: the versions that they need of a system's libraries.

What is compiled on one Linux asks for the symbol versions of that one's glibc and libstdc++, and
cannot be loaded where these are older.
"""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]

# The oldest system that a bundle is for, and what its libraries have: glibc 2.35, GCC 12.
# Source: `readelf -V` of libc6 2.35, libstdc++6 and libgcc-s1 12.3 of Ubuntu 22.04.
OLDEST_SYSTEM = "Ubuntu 22.04"
OLDEST: Mapping[str, Version] = {
    "GLIBC": (2, 35),
    "GLIBCXX": (3, 4, 30),
    "CXXABI": (1, 3, 13),
    "GCC": (12, 0, 0),
}
# Named for what the loader must know, and not for a release. Source: NEWS of glibc 2.36.
_RELEASES = {"GLIBC_ABI_DT_RELR": "GLIBC_2.36"}
# Libraries of the system and of the driver; a bundle brings all others itself.
_OF_THE_SYSTEM = frozenset(
    (
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1", "libcuda.so.1"),
    )
)
_LIBRARY = re.compile(r"\.so(\.\d+)*(\.xz)?$")
_NEEDED = re.compile(r"\(NEEDED\) +Shared library: \[(.+)\]")
_NAME = re.compile(r"  Name: (\S+) ")
_VERSION = re.compile(r"([A-Z]+)_([0-9.]+)")
_SECTION = re.compile(r"^Version (\w+) section", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Needs:
    """Libraries by name, and of each family of symbol versions the newest."""

    libraries: frozenset[str]
    versions: Mapping[str, Version]


def needs_of(library: Path) -> Needs:
    """What a shared library needs, as readelf has it.

    Raises:
        OSError, subprocess.CalledProcessError: there is no readelf, or the file is no library.
    """
    command = ["readelf", "--wide", "--dynamic", "--version-info", str(library)]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return parsed(done.stdout)


def parsed(said: str) -> Needs:
    """`Needs` in what readelf says of a library's dynamic section and of its versions."""
    # Before the first section of versions; then a kind and what it has, in turn.
    head, *sections = _SECTION.split(said)
    versions: dict[str, Version] = {}
    for kind, text in zip(sections[::2], sections[1::2], strict=True):
        if kind == "needs":
            for name in _NAME.findall(text):
                if match := _VERSION.fullmatch(_RELEASES.get(name, name)):
                    version = tuple(map(int, match[2].split(".")))
                    versions[match[1]] = max(version, versions.get(match[1], ()))
    return Needs(frozenset(_NEEDED.findall(head)), versions)


def libraries_of(bundle: Path) -> dict[str, Needs]:
    """What each library of a bundle needs, by its name there."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "library.so"
        for path in sorted(bundle.rglob("*.so*")):
            if _LIBRARY.search(path.name):
                content = path.read_bytes()
                packed = path.suffix == ".xz"
                plain.write_bytes(lzma.decompress(content) if packed else content)
                found[str(path.relative_to(bundle))] = needs_of(plain)
    return found


def newest(needs: Iterable[Needs]) -> dict[str, Version]:
    """The newest version of each family that any of them needs."""
    found: dict[str, Version] = {}
    for one in needs:
        for family, version in one.versions.items():
            found[family] = max(version, found.get(family, ()))
    return found


def complaints(libraries: Mapping[str, Needs]) -> list[str]:
    """Why libraries of a bundle cannot be loaded on `OLDEST_SYSTEM`; none where all can be."""
    brought = {Path(name).name.removesuffix(".xz") for name in libraries}
    found = []
    for name, needs in libraries.items():
        for family, version in needs.versions.items():
            if version > OLDEST.get(family, ()):
                shown = ".".join(map(str, version))
                found.append(f"{name} needs {family}_{shown}, which {OLDEST_SYSTEM} has not")
        for library in sorted(needs.libraries - _OF_THE_SYSTEM - brought):
            found.append(f"{name} needs {library}, which neither bundle nor driver bring")
    return found
