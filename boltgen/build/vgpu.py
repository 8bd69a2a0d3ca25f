"""Builds the virtual GPU's libraries, once per machine and version of its sources."""

from __future__ import annotations

import shutil
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.children import Children
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import HostCompiler, find_host_compiler
from boltgen.errors import ToolchainError
from boltgen.ir.key import digest
from boltgen.paths import resource_dir
from boltgen.settings import Settings

# What the rest of boltgen loads; a build without them is no build.
LIBRARIES = ("libcuda.so.1", "libcudart.so.13")

_CPU_INFO = Path("/proc/cpuinfo")


def vgpu_libraries(
    settings: Settings, cache: Cache | None = None, reporter: Reporter | None = None
) -> Path:
    """The folder of the virtual GPU's libraries, built where the cache has none.

    Raises:
        ToolchainError: make or the host compiler is missing, or the build fails.
        CacheError: the cache cannot be used.
    """
    source = resource_dir("vgpu")
    compiler = find_host_compiler(settings)
    key = _key(source, compiler)
    cache = cache or Cache(settings.cache_dir)
    told = reporter or Silent()

    def build(folder: Path) -> None:
        told.start("building the virtual GPU", 1)
        try:
            _make(source, folder, compiler, settings)
            told.step("its libraries")
        finally:
            told.end()

    return cache.get_or_build("vgpu", key, build).folder


def _key(source: Path, compiler: HostCompiler) -> str:
    files = sorted(path for path in source.rglob("*") if path.is_file())
    contents = tuple((str(p.relative_to(source)), p.read_text(errors="replace")) for p in files)
    return digest("vgpu", contents, compiler.version, _processor())


def _processor() -> str:
    """The processor's instruction sets: the libraries are built for the machine at hand."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _make(source: Path, folder: Path, compiler: HostCompiler, settings: Settings) -> None:
    make = shutil.which("make", path=settings.search_path)
    if not make:
        raise ToolchainError(
            "make is not on PATH; the virtual GPU is built with it: install it (Debian and "
            "Ubuntu: `apt install make`)"
        )
    work = folder / "work"
    work.mkdir()
    log = folder / "build.log"
    status = Children().run(
        (
            make,
            "-C",
            str(source),
            f"-j{settings.jobs}",
            f"CXX={compiler.path}",
            f"BUILD={work}",
            f"OUT={folder}",
        ),
        folder=folder,
        environment=dict(settings.compiler_environment),
        log=log,
    )
    missing = [name for name in LIBRARIES if not (folder / name).is_file()]
    if status or missing:
        said = log.read_text(errors="replace").splitlines()
        errors = [line for line in said if "error" in line or "Error" in line] or said[-1:]
        raise ToolchainError(
            f"the virtual GPU cannot be built with {compiler.path} ({compiler.version}): "
            f"{errors[0] if errors else f'no {missing[0]} was made'}\n"
            f"  it needs a C++20 compiler; by hand: make -C {source}"
        )
    shutil.rmtree(work, ignore_errors=True)
