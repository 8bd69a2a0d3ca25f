"""CUDA programs of `programs/`: compiled, linked to the virtual GPU's runtime, and started."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.codegen.nvcc import DeviceCode, device_code_flag
from boltgen.runtime.vgpu_program import run_program
from boltgen.settings import settings_from

SOURCES = Path(__file__).with_name("programs")


def link(name: str, runtime: Path, output: Path, *flags: str, arch: str = "sm_75") -> Path:
    """A program of `SOURCES` for `arch`, compiled with `flags` too, linked to the given runtime."""
    settings = settings_from()
    tools = find_toolchain(settings)
    unit = TranslationUnit(
        kind="example",
        name=name,
        text=(SOURCES / f"{name}.cu").read_text(encoding="utf-8"),
        suffix=".cu",
        output="program.o",
        compiler=tools.nvcc.path,
        flags=(
            *("-c", "-std=c++17", "-O2", "--no-compress"),
            *device_code_flag(arch, DeviceCode.PTX),
            *flags,
        ),
        include=(),
        machine_flags=("-ccbin", str(tools.cxx.path)),
        identity=tools.cuda_identity,
        environment=tools.environment,
    )
    (built,) = objects_or_raise(compile_all([unit], Cache(settings.cache_dir), jobs=1))
    program = output / name
    command = [str(tools.cxx.path), "-o", program, built.path, runtime, "-pthread"]
    subprocess.run(
        [*command, f"-Wl,-rpath-link,{runtime.parent}"], check=True, env=dict(tools.environment)
    )
    return program


def run(program: Path, libraries: Path, *arguments: str, **options: str) -> tuple[str, str]:
    """What a program that ends well prints, and what goes to stderr. `options` are those of
    BOLTGEN_VGPU."""
    done = run_program(
        [str(program), *arguments],
        libraries=libraries,
        options=options,
        settings=settings_from(),
        capture=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr
