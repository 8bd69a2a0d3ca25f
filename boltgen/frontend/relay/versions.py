"""Find the installed TVM, whether it has Relay, and all differences between the versions that have
it.

Nothing here imports TVM: the answer is needed before, since TVM cannot be imported without the
CUDA libraries that it was linked with.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boltgen.errors import ToolchainError
from boltgen.installation import install_command

# Relay was removed after 0.19. 0.14 is the first release with the external code generators, packed
# calling convention and static libraries that the frontend uses.
OLDEST = (0, 14)
NEWEST = (0, 19)
# The release that the test suite runs with.
TESTED = (0, 17)
# The Relax API that boltgen's other frontend is written against begins here.
OLDEST_RELAX = (0, 25)

REMEDY = (
    "make an environment with one (`boltgen setup-relay DIR`), or install boltgen beside a TVM of "
    "your own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTvm:
    """The TVM that `import tvm` would find; `number` is (major, minor)."""

    folder: Path
    version: str
    number: tuple[int, int]

    @property
    def has_relay(self) -> bool:
        """Whether boltgen's Relay frontend works with it."""
        return OLDEST <= self.number <= NEWEST

    @property
    def has_relax(self) -> bool:
        """Whether boltgen's Relax frontend works with it."""
        return self.number >= OLDEST_RELAX


def installed_tvm() -> InstalledTvm | None:
    """Return the TVM on Python's path, or None if there is none."""
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    version = _version(folder)
    found = re.match(r"(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    return InstalledTvm(folder=folder, version=version, number=number)


def _version(folder: Path) -> str:
    """Return the version that the package states: in its code up to 0.19, in its metadata later."""
    info = folder / "_ffi" / "libinfo.py"
    if info.is_file():
        found = re.search(r'^__version__ = "([^"]+)"', info.read_text(), re.MULTILINE)
        if found:
            return found[1]
    try:
        return importlib.metadata.version("apache-tvm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def require_relay() -> InstalledTvm:
    """The installed TVM, which has Relay.

    Raises:
        ToolchainError: there is none, or it is of a version without Relay or without what the
            frontend needs.
    """
    found = installed_tvm()
    if found is None:
        raise ToolchainError(
            f"boltgen.relay needs a TVM with Relay, and none is installed: {REMEDY}"
        )
    if not found.has_relay:
        lacks = "has no Relay" if found.number > NEWEST else "is not supported"
        raise ToolchainError(
            f"boltgen.relay needs a TVM from {_shown(OLDEST)} to {_shown(NEWEST)}; TVM "
            f"{found.version} in {found.folder} {lacks}: {REMEDY}"
        )
    return found


def require_relax() -> InstalledTvm:
    """The installed TVM, which boltgen's Relax frontend works with.

    Raises:
        ToolchainError: there is none, or it is too old.
    """
    found = installed_tvm()
    remedy = f"`{install_command('relax')}` in an environment of its own"
    if found is None:
        raise ToolchainError(f"TVM is not installed: {remedy}")
    if not found.has_relax:
        raise ToolchainError(
            f"the Relax frontend needs TVM {_shown(OLDEST_RELAX)} or newer; {found.folder} has "
            f"{found.version}: {remedy}"
        )
    return found


def _shown(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


def cuda_compile_callback(
    compile_text: Callable[[str, object], bytes],
) -> Callable[..., bytearray]:
    """`tvm_callback_cuda_compile` for every version.

    All supported ones pass the target. Source: apache/tvm#14939, of May 2023; builds of 0.14 in
    development from before that day pass the code alone.
    """

    def callback(code: str, target: object = None) -> bytearray:
        return bytearray(compile_text(code, target))

    return callback


def function_attribute(function: object, name: str) -> str | None:
    """Return a function's attribute as text, or None if it has none of that name.

    A function without attributes has None in their place until 0.16, an empty dictionary later.
    Source: apache/tvm#16745.
    """
    attrs = getattr(function, "attrs", None)
    return str(attrs[name]) if attrs is not None and name in attrs else None
