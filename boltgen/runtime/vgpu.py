"""The virtual GPU's own interface: settings, launches and the text of faults.

Programs and TVM talk to it through CUDA's libraries, whose place it takes in the process.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boltgen.errors import VgpuError

# In this order: the runtimes need the others.
_LIBRARIES = ("libvgpu.so", "libcuda.so.1")
# What boltgen's kernels are linked with.
RUNTIMES = ("libcudart.so.13",)
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """One kernel launch that was executed."""

    kernel: str  # as the compiler mangled it
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    warp_instructions: int
    wall_s: float


class _Launch(ctypes.Structure):
    """`vgpu_launch` of vgpu.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint64),
        ("warp_instructions", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
    )


class Vgpu:
    """The virtual GPU that is loaded into this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.vgpu_last_error.restype = ctypes.c_char_p
        library.vgpu_isa.restype = ctypes.c_char_p
        library.vgpu_counters.restype = ctypes.c_char_p
        library.vgpu_launches.restype = ctypes.c_uint64
        library.vgpu_launches.argtypes = (ctypes.POINTER(_Launch), ctypes.c_uint64)
        library.vgpu_set_option.argtypes = (ctypes.c_char_p, ctypes.c_char_p)

    def launches(self) -> list[LaunchRecord]:
        """The launches since the start or the last `clear_launches`, oldest first."""
        room = int(self._library.vgpu_launches(None, 0))
        found = (_Launch * room)()
        count = min(room, int(self._library.vgpu_launches(found, room)))
        return [
            LaunchRecord(
                kernel=launch.kernel.decode(),
                grid=tuple(launch.grid),
                block=tuple(launch.block),
                dynamic_shared_bytes=launch.dynamic_shared_bytes,
                warp_instructions=launch.warp_instructions,
                wall_s=launch.seconds,
            )
            for launch in found[:count]
        ]

    def counters(self) -> list[dict[str, Any]]:
        """What the launches under the option `counters=on` did, oldest first.

        The names are those of vgpu/README.md.
        """
        found: list[dict[str, Any]] = json.loads(self._library.vgpu_counters())
        return found

    def clear_launches(self) -> None:
        """Forget the launches so far."""
        self._library.vgpu_clear_launches()

    def last_error(self) -> str:
        """The full message of the last fault or refused call; empty where there was none."""
        text: bytes = self._library.vgpu_last_error()
        return text.decode(errors="replace")

    def clear_error(self) -> None:
        """Forget a fault, after which every call fails (a GPU wants a new process for that)."""
        self._library.vgpu_reset_error()

    def isa(self) -> str:
        """The host instruction set in use: avx512, avx2 or generic."""
        text: bytes = self._library.vgpu_isa()
        return text.decode()

    def set_option(self, name: str, value: str | int) -> None:
        """Set `threads`, `device`, `isa`, `check`, `copies` or `counters` for the launches to come.

        Raises:
            VgpuError: the option or its value is unknown.
        """
        if self._library.vgpu_set_option(name.encode(), str(value).encode()):
            raise VgpuError(self.last_error())


def load(lib_dir: Path, device: str = "sm_80", *, runtimes: Sequence[str] = RUNTIMES) -> Vgpu:
    """Put the virtual GPU's libraries in `lib_dir` in the place of CUDA's, for this process.

    `runtimes` are the CUDA runtimes whose place it takes. To be called before TVM or any CUDA
    library is loaded; calling it again is harmless.

    Raises:
        RuntimeError: the process has loaded another CUDA driver or runtime already.
        VgpuError: the libraries cannot be loaded, or the device is unknown.
    """
    folder = lib_dir.resolve()
    mapped = _mapped_libraries()
    names = (*_LIBRARIES, *runtimes)
    for name in names:
        foreign = [path for path in mapped if path.name == name and path != folder / name]
        if foreign:
            raise RuntimeError(
                f"this process has loaded {foreign[0]} already, so {folder / name} cannot take its "
                "place: load the virtual GPU before importing tvm, torch or any other module that "
                "uses CUDA, or use a process of its own"
            )
    try:
        libraries = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in names]
    except OSError as error:
        raise VgpuError(
            f"the virtual GPU cannot be loaded ({error}); build it with `make -C vgpu OUT={folder}`"
        ) from error
    vgpu = Vgpu(libraries[0])
    vgpu.set_option("device", device)
    return vgpu


def _mapped_libraries() -> set[Path]:
    lines = _MAPS.read_text().splitlines()
    return {Path("/" + line.partition("/")[2]) for line in lines if "/" in line}
