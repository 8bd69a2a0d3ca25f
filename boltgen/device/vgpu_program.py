"""Run a program on the virtual GPU, whose libraries take the place of CUDA's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from boltgen.build.vgpu import vgpu_environment
from boltgen.device.vgpu import check_options
from boltgen.errors import VgpuError
from boltgen.intake.files import read_regular
from boltgen.settings import Settings

# The first bytes of an ELF file, names in the tables of CUDA programs, the most bytes to read.
_ELF = b"\x7fELF"
_USES_CUDA = b"__cudaRegisterFatBinary"
_MOST_BYTES = 4 << 30
_LOADS_RUNTIME = b"libcudart.so."


def run_program(
    command: Sequence[str],
    *,
    libraries: Path,
    options: Mapping[str, str],
    settings: Settings,
    folder: Path | None = None,
    timeout_s: float | None = None,
    capture: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `command` with the virtual GPU in `libraries` as its CUDA, and wait for its end.

    `options` are added to BOLTGEN_VGPU; they override options of the environment. The program runs
    in `folder`, or in the current folder. With `capture` the result has its output, otherwise the
    program writes to the output of this process.

    Raises:
        VgpuError: the program does not exist, is linked with CUDA's runtime statically, or an
            option or its value is unknown.
        subprocess.TimeoutExpired: the program ran longer than `timeout_s`.
    """
    found = shutil.which(command[0], path=settings.search_path) if command else None
    if not found:
        raise VgpuError(f"{command[0] if command else 'nothing'}: no such program")
    _refuse_static_runtime(Path(found))
    environment = vgpu_environment(settings, libraries, options)
    # Check here: a program that fails before it uses CUDA would not report a mistyped option.
    check_options(libraries, environment["BOLTGEN_VGPU"])
    try:
        return subprocess.run(
            [found, *command[1:]],
            env=environment,
            cwd=folder,
            capture_output=capture,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise VgpuError(f"{found} cannot be started: {error.strerror}") from error


def _refuse_static_runtime(program: Path) -> None:
    """Raise VgpuError if `program` contains CUDA's runtime, which uses the driver's private API."""
    try:
        image = read_regular(program, _MOST_BYTES)
    except OSError as error:
        raise VgpuError(f"{program} cannot be read: {error.strerror or error}") from error
    if image.startswith(_ELF) and _USES_CUDA in image and _LOADS_RUNTIME not in image:
        raise VgpuError(
            f"{program} holds CUDA's runtime, nvcc's default; the virtual GPU can only take the "
            "place of a library: link it with `nvcc -cudart shared`"
        )
