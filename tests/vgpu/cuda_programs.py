"""CUDA programs of `programs/`: compiled, linked to the virtual GPU's runtime, and started."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.cuda_programs import build_programs, program_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.device.vgpu_program import run_program
from boltgen.settings import settings_from

SOURCES = Path(__file__).with_name("programs")


def link(name: str, runtime: Path, output: Path, *flags: str, arch: str = "sm_75") -> Path:
    """A program of `SOURCES` for `arch`, compiled with `flags` too, linked to the given runtime."""
    tools = find_toolchain(settings_from())
    text = (SOURCES / f"{name}.cu").read_text(encoding="utf-8")
    unit = program_unit(name, text, tools, arch=arch, flags=("-c", *flags))
    (built,) = build_programs([unit])
    program = output / name
    command = [str(tools.cxx.path), "-o", program, built, runtime, "-pthread"]
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
