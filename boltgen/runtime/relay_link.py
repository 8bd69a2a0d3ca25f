"""Arrow: a partitioned Relay module, built by TVM, to one shared library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import fatbin_unit
from boltgen.frontend.relay.versions import cuda_compile_callback
from boltgen.settings import Settings, settings_from

_CALLBACK = "tvm_callback_cuda_compile"


@dataclass(slots=True)
class CudaSources:
    """CUDA source that TVM generated for the operators that stayed with it, as it was compiled."""

    paths: list[Path] = field(default_factory=list)


@contextmanager
def cuda_compiler(
    arch: str,
    tools: Toolchain | None = None,
    cache: Cache | None = None,
    settings: Settings | None = None,
) -> Iterator[CudaSources]:
    """While it is open, TVM compiles CUDA with our nvcc, cached, to a fat binary of SASS and PTX.

    TVM's own callback asks for a CUDA toolkit of the system's and for a GPU's architecture.

    Raises:
        CompileError: nvcc refuses what TVM generated.
        ToolchainError: there is no nvcc.
    """
    chosen = settings or settings_from()
    row, sources = arch_named(arch), CudaSources()
    tools = tools or find_toolchain(chosen)
    cache = cache or Cache(chosen.cache_dir)
    failures: list[Exception] = []

    def compile_text(code: str) -> bytes:
        try:
            unit = fatbin_unit("tvm_kernels", _without_htanh(code), row.name, tools)
            (compiled,) = objects_or_raise(compile_all([unit], cache, jobs=1))
            sources.paths.append(compiled.source)
            return compiled.path.read_bytes()
        except Exception as error:
            failures.append(error)  # TVM's FFI passes on the message, not the exception
            raise

    previous = tvm.get_global_func(_CALLBACK, allow_missing=True)
    tvm.register_func(_CALLBACK, cuda_compile_callback(compile_text), override=True)
    try:
        yield sources
    except Exception:
        if failures:
            raise failures[0] from None
        raise
    finally:
        if previous is not None:
            tvm.register_func(_CALLBACK, previous, override=True)


def _without_htanh(code: str) -> str:
    """TVM's prelude defines `htanh`, which CUDA's headers also do since 12.8."""
    return re.sub(r"\bhtanh\b", "tvm_htanh", code)


def export_library(built: Any, output: str | Path, settings: Settings | None = None) -> Path:
    """Write what `relay.build` or `relay.vm.compile` returned to one shared library.

    It finds the CUDA runtime by its name in the process that loads it, be it a GPU's or the virtual
    GPU's.

    Raises:
        ToolchainError: the linker fails.
    """
    tools = find_toolchain(settings or settings_from())
    path = Path(output).absolute()

    def link(name: str, objects: Sequence[str], **_: object) -> None:
        link_shared([Path(each) for each in objects], Path(name), tools)

    exportable = built if hasattr(built, "export_library") else built.mod
    exportable.export_library(str(path), fcompile=link)
    return path
