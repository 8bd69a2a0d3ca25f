"""Arrow: from a kernel's object to an archive, which a linker may be given several times."""

from __future__ import annotations

from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.nvcc.children import Children
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompiledObject
from boltgen.errors import ToolchainError

_ARCHIVE = "kernel.a"
_LOG = "archive.log"


def archive(compiled: CompiledObject, cache: Cache, tools: Toolchain) -> Path:
    """Return the archive whose only member is `compiled`, from the cache if it is there.

    Raises:
        ToolchainError: the archiver fails or is missing.
        CacheError: the cache cannot be written.
    """

    def build(folder: Path) -> None:
        # Each host compiler names its own archiver.
        program = _run((str(tools.cxx.path), "-print-prog-name=ar"), folder, tools)
        _run((program, "rcsD", _ARCHIVE, str(compiled.path)), folder, tools)

    return cache.get_or_build("archive", compiled.unit.key, build, [_ARCHIVE]).folder / _ARCHIVE


def _run(command: tuple[str, ...], folder: Path, tools: Toolchain) -> str:
    log = folder / _LOG
    environment = dict(tools.environment)
    status = Children().run(command, folder=folder, environment=environment, log=log)
    said = log.read_text(encoding="utf-8", errors="replace").strip()
    if status:
        raise ToolchainError(
            f"`{' '.join(command)}` ends with status {status}: {said[-500:]}; the archiver comes "
            "with the host compiler (Debian and Ubuntu: `apt install binutils`)"
        )
    return said
