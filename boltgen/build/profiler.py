"""Builds the profiler's shared library, once per machine, compiler and version of its sources."""

from __future__ import annotations

from pathlib import Path

from boltgen.arch import ARCHES
from boltgen.build.cache import Cache
from boltgen.build.children import Children
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import Toolchain
from boltgen.codegen.nvcc import LANGUAGE_FLAGS, every_device_flags
from boltgen.codegen.oracle_functions import render_oracle_functions
from boltgen.errors import ToolchainError
from boltgen.ir.key import digest
from boltgen.paths import resource_dir

LIBRARY = "libboltgen_profiler.so"

_SOURCES = (".cu", ".cuh", ".cpp", ".h")
_LOG = "build.log"
# Written into the folder of the build, for profiler/interval.cuh.
_FUNCTIONS = "unary_functions.inc"


def profiler_library(tools: Toolchain, cache: Cache, reporter: Reporter | None = None) -> Path:
    """The shared library whose C interface is `profiler/profiler.h`, built where it is not cached.

    Raises:
        ToolchainError: nvcc cannot be started, or fails.
        CacheError: the cache cannot be used.
    """
    source = resource_dir("profiler")
    command = _command(source, tools)
    key = _key(source, command, tools)
    told = reporter or Silent()
    entry = cache.get_or_build(
        "profiler", key, lambda folder: _build(command, folder, tools, told), [LIBRARY]
    )
    return entry.folder / LIBRARY


def _key(source: Path, command: tuple[str, ...], tools: Toolchain) -> str:
    files = sorted(path for path in source.iterdir() if path.suffix in _SOURCES)
    contents = tuple((path.name, path.read_text(encoding="utf-8")) for path in files)
    abi = (tools.templates / "boltgen" / "abi.h").read_text(encoding="utf-8")
    flags = tuple(word for word in command if word.startswith("-") and "/" not in word)
    return digest("profiler", contents, abi, render_oracle_functions(), flags, tools.cuda_identity)


def _command(source: Path, tools: Toolchain) -> tuple[str, ...]:
    # PTX of the oldest serves the virtual GPU and what comes after the newest.
    known = [name for name, arch in ARCHES.items() if tools.nvcc.compiles_for(arch)]
    code = every_device_flags([name for name in known if not name.endswith("a")])
    runtime = tools.nvcc.runtime
    return (
        str(tools.nvcc.path),
        *("-shared", *LANGUAGE_FLAGS, "-Xcompiler=-fPIC,-Wall,-Wextra"),
        *code,
        *("-ccbin", str(tools.cxx.path)),
        "-I.",  # _FUNCTIONS
        f"-I{tools.templates}",
        *(str(path) for path in sorted(source.iterdir()) if path.suffix in (".cu", ".cpp")),
        # As generated kernels are linked: the process decides which runtime it meets.
        *("-cudart=none", f"-L{runtime.parent}", f"-l:{runtime.name}"),
        *("-o", LIBRARY),
    )


def _build(command: tuple[str, ...], folder: Path, tools: Toolchain, reporter: Reporter) -> None:
    reporter.start("building the profiler", 1)
    try:
        (folder / _FUNCTIONS).write_text(render_oracle_functions(), encoding="utf-8")
        log = folder / _LOG
        status = Children().run(
            command, folder=folder, environment=dict(tools.environment), log=log
        )
        if status or not (folder / LIBRARY).is_file():
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise ToolchainError(
                f"{tools.nvcc.path} cannot build the profiler (status {status}):\n{said[-2000:]}"
            )
        reporter.step(LIBRARY)
    finally:
        reporter.end()
