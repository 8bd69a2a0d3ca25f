"""Examine what boltgen needs on this machine: what is found, where, and how to get the rest."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import (
    Nvcc,
    find_cutlass,
    find_host_compiler,
    find_nvcc,
    find_templates,
    find_tvm_ffi,
    nvcc_candidates,
)
from boltgen.build.vgpu import vgpu_libraries
from boltgen.errors import BoltgenError
from boltgen.frontend.relay.versions import installed_tvm
from boltgen.installation import install_command
from boltgen.settings import Settings


class Verdict(Enum):
    """The meaning of a finding for the user."""

    FINE = "ok"
    OPTIONAL = "note"  # boltgen works without it
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one requirement; `detail` has its place, or the remedy."""

    subject: str
    verdict: Verdict
    detail: str


def examine(settings: Settings, reporter: Reporter | None = None) -> Iterator[Finding]:
    """Examine all requirements of boltgen, one finding at a time."""
    yield Finding("Python", Verdict.FINE, f"{platform.python_version()}, {platform.machine()}")
    yield _needed("nvcc", lambda: _nvcc_text(find_nvcc(settings)))
    yield from _passed_over(settings)
    yield _needed("CUTLASS", lambda: _headers_text(find_cutlass()))
    yield _needed("host compiler", lambda: _compiler_text(settings))
    yield _needed("templates", lambda: str(find_templates()))
    yield _needed("TVM", _tvm_text)
    yield _tvm_ffi()
    yield _needed("cache", lambda: str(Cache(settings.cache_dir).root))
    yield _make(settings)
    yield _needed("virtual GPU", lambda: str(vgpu_libraries(settings, reporter=reporter)))
    yield _gpu_driver()


def _needed(subject: str, find: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, Verdict.FINE, find())
    except BoltgenError as error:
        return Finding(subject, Verdict.BROKEN, str(error))


def _nvcc_text(nvcc: Nvcc) -> str:
    note = f"; {nvcc.note}" if nvcc.note else ""
    return f"{nvcc.version_text} from {nvcc.origin}: {nvcc.path}{note}"


def _passed_over(settings: Settings) -> Iterator[Finding]:
    """Yield the nvcc installations that are not used, and the places without a usable nvcc."""
    used = False
    for candidate in nvcc_candidates(settings):
        subject = f"nvcc ({candidate.origin})"
        if isinstance(candidate, Nvcc):
            if used:
                detail = f"{candidate.version_text}: {candidate.path}, not used"
                yield Finding(subject, Verdict.OPTIONAL, detail)
            used = True
        else:
            where = f"{candidate.path}: " if candidate.path else ""
            yield Finding(subject, Verdict.OPTIONAL, f"{where}{candidate.reason}")


def _headers_text(headers: object) -> str:
    return f"{getattr(headers, 'version', '')}: {getattr(headers, 'include', '')}"


def _compiler_text(settings: Settings) -> str:
    compiler = find_host_compiler(settings)
    return f"{compiler.version}: {compiler.path}"


def _tvm_text() -> str:
    """Describe the installed TVM and the frontends that support it."""
    found = installed_tvm()
    if found is None:
        raise BoltgenError(
            f"not installed: `{install_command('relax')}` for Relax, `boltgen setup-relay DIR` "
            "for Relay"
        )
    where = f"{found.version} in {found.folder}"
    if found.has_relax:
        return f"{where}: Relax (boltgen.relax); for Relay: `boltgen setup-relay DIR`"
    if found.has_relay:
        return f"{where}: Relay (boltgen.relay, relay.build)"
    raise BoltgenError(
        f"{where} is supported by neither frontend: Relay needs 0.14 to 0.19, Relax 0.25 or newer"
    )


def _tvm_ffi() -> Finding:
    tvm = installed_tvm()
    if tvm is not None and tvm.has_relay:
        return Finding("TVM FFI", Verdict.FINE, f"not used by TVM {tvm.version}")
    return _needed("TVM FFI", lambda: _headers_text(find_tvm_ffi()))


def _make(settings: Settings) -> Finding:
    found = shutil.which("make", path=settings.search_path)
    if found:
        return Finding("make", Verdict.FINE, found)
    return Finding(
        "make",
        Verdict.BROKEN,
        "not on PATH; the virtual GPU is built with it (Debian and Ubuntu: `apt install make`)",
    )


def _gpu_driver() -> Finding:
    # The driver is only loaded, not initialised: otherwise the process could not use the virtual
    # GPU.
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding(
            "GPU driver",
            Verdict.OPTIONAL,
            "no libcuda.so.1: models run on the virtual GPU (--device vgpu)",
        )
    return Finding("GPU driver", Verdict.FINE, "libcuda.so.1 can be loaded")
