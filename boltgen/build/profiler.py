"""Build the profiler's shared library, once per machine, compiler and version of its sources."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeAlias

from boltgen.arch import ARCHES, Arch, device_for
from boltgen.build.cache import Cache
from boltgen.build.nvcc.children import Children
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import Toolchain
from boltgen.codegen.nvcc import LANGUAGE_FLAGS, every_device_flags
from boltgen.codegen.oracle_functions import render_oracle_functions
from boltgen.errors import ToolchainError
from boltgen.ir.key import digest
from boltgen.paths import resource_dir

LIBRARY = "libboltgen_profiler.so"

_KIND = "profiler"
# The command lines that compile a source, and that link.
_Commands: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

_SOURCES = (".cu", ".cuh", ".cpp", ".h")
# Generated into the build's folder, for profiler/interval.cuh.
_FUNCTIONS = "unary_functions.inc"


def profiler_library(
    tools: Toolchain,
    cache: Cache,
    reporter: Reporter | None = None,
    *,
    jobs: int = 1,
    only: Arch | None = None,
) -> Path:
    """Return the profiler's shared library (see `profiler/profiler.h`); build it if absent.

    `jobs` compilers build its sources at once, for every architecture or only for `only`.

    Raises:
        ToolchainError: nvcc cannot be started, or fails.
        CacheError: the cache cannot be used.
    """
    source = resource_dir("profiler")
    commands = _commands(tools, only)
    key = _key(source, commands, tools)
    told = reporter or Silent()
    entry = cache.get_or_build(
        _KIND,
        key,
        lambda folder: _build(folder, tools, commands, jobs=jobs, reporter=told),
        [LIBRARY],
    )
    return entry.folder / LIBRARY


def built_profiler(tools: Toolchain, cache: Cache) -> Path | None:
    """Return the library for every architecture if it is in the cache, else None."""
    key = _key(resource_dir("profiler"), _commands(tools, None), tools)
    found = cache.find(_KIND, key, [LIBRARY])
    return found / LIBRARY if found else None


def _key(source: Path, commands: _Commands, tools: Toolchain) -> str:
    files = sorted(path for path in source.iterdir() if path.suffix in _SOURCES)
    contents = tuple((path.name, path.read_text(encoding="utf-8")) for path in files)
    abi = (tools.templates / "boltgen" / "abi.h").read_text(encoding="utf-8")
    command = ("-shared", *commands[0], *commands[1])
    flags = tuple(word for word in command if word.startswith("-") and "/" not in word)
    return digest("profiler", contents, abi, render_oracle_functions(), flags, tools.cuda_identity)


def _commands(tools: Toolchain, only: Arch | None) -> _Commands:
    """Return the command lines that compile a source and that link, without files."""
    # PTX of the oldest architecture serves the virtual GPU and GPUs newer than the newest one.
    known = [name for name, arch in ARCHES.items() if tools.nvcc.compiles_for(arch)]
    names = [device_for(only.name)] if only else [name for name in known if name[-1] != "a"]
    code = every_device_flags(names)
    runtime = tools.nvcc.runtime
    compiling = (
        *(*LANGUAGE_FLAGS, "-Xcompiler=-fPIC,-Wall,-Wextra", *code),
        *("-ccbin", str(tools.cxx.path)),
        "-I.",  # _FUNCTIONS
        f"-I{tools.templates}",
    )
    # Like generated kernels: the process decides which CUDA runtime it uses.
    linking = ("-cudart=none", f"-L{runtime.parent}", f"-l:{runtime.name}", "-o", LIBRARY)
    return compiling, linking


def _build(
    folder: Path, tools: Toolchain, commands: _Commands, *, jobs: int, reporter: Reporter
) -> None:
    (folder / _FUNCTIONS).write_text(render_oracle_functions(), encoding="utf-8")
    compiling, linking = commands
    source = resource_dir("profiler")
    sources = sorted(path for path in source.iterdir() if path.suffix in (".cu", ".cpp"))
    # The largest sources first, so that the last job is short.
    sources.sort(key=lambda path: -path.stat().st_size)
    children = Children()

    def run(*words: str, name: str) -> str:
        log = folder / f"{name}.log"
        status = children.run(
            (str(tools.nvcc.path), *words),
            folder=folder,
            environment=dict(tools.environment),
            log=log,
        )
        if status:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise ToolchainError(
                f"{tools.nvcc.path} cannot build the profiler (status {status}):\n{said[-2000:]}"
            )
        return name

    reporter.start("building the profiler", len(sources) + 1)
    try:
        with ThreadPoolExecutor(max_workers=max(1, min(jobs, len(sources)))) as pool:
            running = [
                pool.submit(
                    run, "-c", *compiling, str(path), "-o", f"{path.name}.o", name=path.name
                )
                for path in sources
            ]
            try:
                for done in as_completed(running):
                    reporter.step(done.result())
            except BaseException:
                children.stop()
                raise
        objects = [f"{path.name}.o" for path in sources]
        run("-shared", *compiling, *objects, *linking, name=LIBRARY)
        reporter.step(LIBRARY)
    finally:
        reporter.end()
    for path in sources:
        (folder / f"{path.name}.o").unlink()
