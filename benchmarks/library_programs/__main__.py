"""Kernels that nobody here wrote: Thrust, CUB, cooperative groups and libcu++ on the virtual GPU.

Each `.cu` file of this folder holds programs that drive kernels of CUDA's headers and compare with
the host's result. A program runs in a process of its own, on one thread, for an
A100; it passes where its results are right and the virtual GPU has nothing to say.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.cuda_programs import build_programs, program_unit
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.build.vgpu import vgpu_libraries
from boltgen.device.vgpu_program import run_program
from boltgen.settings import settings_from

FOLDER = Path(__file__).parent
FILES = tuple(sorted(path.stem for path in FOLDER.glob("*.cu")))
ARCH = "sm_80"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a program: its fault, empty if it passed."""

    name: str
    file: str
    fault: str
    seconds: float


def unit(file: str, tools: Toolchain) -> TranslationUnit:
    """Return the translation unit of a file: for PTX only, linked to CUDA's runtime."""
    header = (FOLDER / "programs.h").read_text(encoding="utf-8")
    return program_unit(
        file,
        (FOLDER / f"{file}.cu").read_text(encoding="utf-8"),
        tools,
        arch=ARCH,
        flags=("--extended-lambda", "-w"),
        include=(FOLDER,),
        headers=header,
    )


def build(files: Sequence[str], jobs: int) -> list[Path]:
    """The files' programs, through the user's cache.

    Raises:
        CompileError: one does not compile.
    """
    tools = find_toolchain(settings_from())
    return build_programs([unit(file, tools) for file in files], jobs)


def names_of(program: Path, libraries: Path) -> list[str]:
    """The programs of a built file."""
    return _run(program, libraries, "--list", 60).stdout.split()


def verify(
    name: str, file: str, program: Path, libraries: Path, *, timeout_s: float = 300
) -> Verdict:
    """Run one program of a built file."""
    try:
        done = _run(program, libraries, name, timeout_s)
    except subprocess.TimeoutExpired:
        return Verdict(
            name=name, file=file, fault=f"no end in {timeout_s:.0f} s", seconds=timeout_s
        )
    words = done.stdout.split()
    complaint = done.stderr.partition("vgpu: ")[2].splitlines()
    fault = ""
    if complaint:
        fault = complaint[0][:300]
    elif done.returncode or words[:2] != [name, "passed"]:
        fault = "wrong results" if len(words) == 3 else f"ends with status {done.returncode}"
    seconds = float(words[2]) if len(words) == 3 else 0.0
    return Verdict(name=name, file=file, fault=fault, seconds=seconds)


def _run(
    program: Path, libraries: Path, argument: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    return run_program(
        [str(program), argument],
        libraries=libraries,
        options={"device": ARCH, "threads": "1"},
        settings=settings_from(),
        timeout_s=timeout_s,
        capture=True,
    )


def figures_of(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the figures to record: how many passed, and each program's verdict."""
    return {
        "device": ARCH,
        "passed": sum(not verdict.fault for verdict in verdicts),
        "programs": {
            verdict.name: {
                "file": f"{verdict.file}.cu",
                "verdict": f"FAILED: {verdict.fault}" if verdict.fault else "passed",
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in verdicts
        },
    }


def main() -> int:
    """Build and run the files that are named, or all; the status is 1 where a program fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help=f"of {', '.join(FILES)}; by default all")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at once")
    parser.add_argument("--record", action="store_true", help="keep the verdicts in results/")
    options = parser.parse_args()
    if unknown := set(options.files) - set(FILES):
        parser.error(f"no file {', '.join(sorted(unknown))}")
    if options.record and options.files:
        parser.error("--record keeps the verdicts of all files: name none")
    files = options.files or FILES
    libraries = vgpu_libraries(settings_from())
    verdicts = []
    for file, program in zip(files, build(files, options.jobs), strict=True):
        for name in names_of(program, libraries):
            verdicts.append(verify(name, file, program, libraries))
            said = verdicts[-1]
            print(f"{said.seconds:8.3f} s  {name:<32} {said.fault or 'passed'}", flush=True)
    failed = sum(bool(verdict.fault) for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} programs passed")
    if options.record:
        record.write("library_programs", figures_of(verdicts), "all pass, at least 40 of them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
