"""Compile CUDA programs, ours and others', for PTX only and for CUDA's runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.codegen.nvcc import DeviceCode, device_code_flag
from boltgen.ir.key import digest
from boltgen.settings import settings_from


def program_unit(
    name: str,
    text: str,
    tools: Toolchain,
    *,
    arch: str,
    flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    headers: str = "",
    libraries: Sequence[Path] = (),
) -> TranslationUnit:
    """A unit of the `.cu` file `text`, whose output is an executable.

    With "-c" or "-shared" among `flags` it is an object or a library. `headers` is the text of
    headers of ours, which the cache's key has to know; `libraries` are linked after CUDA's runtime.
    """
    linked = () if "-c" in flags else (tools.nvcc.runtime, *libraries)
    return TranslationUnit(
        kind="example",
        name=name,
        text=text,
        suffix=".cu",
        output="program",
        compiler=tools.nvcc.path,
        flags=(
            *("-std=c++17", "-O2", "--no-compress", *flags),
            *device_code_flag(arch, DeviceCode.PTX),
            "-cudart=none",
        ),
        include=tuple(include),
        machine_flags=(
            *("-ccbin", str(tools.cxx.path)),
            *(word for library in linked for word in ("-Xlinker", str(library))),
        ),
        identity=digest(tools.cuda_identity, headers) if headers else tools.cuda_identity,
        environment=tools.environment,
    )


def build_programs(units: Sequence[TranslationUnit], jobs: int = 1) -> list[Path]:
    """The units' outputs, through the user's cache.

    Raises:
        CompileError: one does not compile.
    """
    done = objects_or_raise(compile_all(units, Cache(settings_from().cache_dir), jobs=jobs))
    return [built.path for built in done]
