"""Libraries of CUTLASS kernels, linked to CUDA's runtime."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cuda_programs import build_programs, program_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from


def cutlass_library(source: Path, arch: str) -> Path:
    """Return the library of a `.cu` file, compiled for `arch` through the user's cache."""
    tools = find_toolchain(settings_from())
    cutlass = tools.cutlass.include
    unit = program_unit(
        source.stem,
        source.read_text(encoding="utf-8"),
        tools,
        arch=arch,
        flags=("-shared", "-Xcompiler", "-fPIC", "-w", "--expt-relaxed-constexpr"),
        include=(cutlass, cutlass.parent / "tools" / "util" / "include"),
    )
    (built,) = build_programs([unit])
    return built
