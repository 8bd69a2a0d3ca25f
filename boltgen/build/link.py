"""Link objects to one shared library that runs on a GPU and on the virtual GPU."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.nvcc.children import Children
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import CompiledObject
from boltgen.errors import ToolchainError


def link_command(objects: Sequence[Path], output: Path, tools: Toolchain) -> tuple[str, ...]:
    """Return the linker's command line.

    The CUDA runtime is named by its soname, after the objects that need it, and no search path is
    recorded: the process that loads the library decides which runtime it uses. With `-Bsymbolic`
    two models in one process each call their own kernels.
    """
    runtime = tools.nvcc.runtime
    return (
        str(tools.cxx.path),
        "-shared",
        "-fPIC",
        "-Wl,-Bsymbolic",
        "-Wl,--build-id=none",
        *(str(path) for path in objects),
        f"-L{runtime.parent}",
        f"-l:{runtime.name}",
        "-o",
        str(output),
    )


def link_shared(objects: Sequence[Path], output: Path, tools: Toolchain) -> Path:
    """Link `objects` to the shared library `output`, which appears complete or not at all.

    Objects with equal contents are linked once: separately partitioned modules may share kernels.

    Raises:
        ToolchainError: the linker fails; the message has the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix=".link-", dir=output.parent) as name:
        folder = Path(name)
        linked, log = folder / output.name, folder / "link.log"
        status = Children().run(
            link_command(_distinct(objects), linked, tools),
            folder=folder,
            environment=dict(tools.environment),
            log=log,
        )
        if status:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise ToolchainError(
                f"{tools.cxx.path} cannot link {output} (status {status}):\n{said[-2000:]}"
            )
        linked.replace(output)
    return output


def _distinct(objects: Sequence[Path]) -> list[Path]:
    """Return the objects in order without later copies."""
    firsts: dict[str, Path] = {}
    for path in objects:
        firsts.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return list(firsts.values())


_LINKED = "kernel.so"


def linked(compiled: CompiledObject, cache: Cache, tools: Toolchain) -> Path:
    """Return a shared library with only `compiled`, from the cache if it is there.

    Raises:
        ToolchainError: the linker fails.
        CacheError: the cache cannot be written.
    """

    def build(folder: Path) -> None:
        link_shared([compiled.path], folder / _LINKED, tools)

    return cache.get_or_build("linked", compiled.unit.key, build, [_LINKED]).folder / _LINKED
