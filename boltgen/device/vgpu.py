"""The virtual GPU's control interface: options, launch records, findings and faults.

Programs and TVM use it through CUDA's libraries, which it replaces in the process.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boltgen.arch import device_for
from boltgen.errors import VgpuError

# In this order, because the CUDA runtimes depend on them.
_LIBRARIES = ("libvgpu.so", "libcuda.so.1")
# The CUDA runtimes with which boltgen's kernels are linked.
RUNTIMES = ("libcudart.so.13",)
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A kernel launch that was executed."""

    kernel: str  # the mangled name
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    warp_instructions: int
    wall_s: float  # on this machine
    cpu_s: float  # of all host threads; other programs hardly influence it
    modelled_s: float  # the modelled time on the device; 0 if times were not requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result of a check; repeated results for a check, kind, kernel and PTX line are one."""

    check: str  # memcheck, initcheck, racecheck, synccheck or deadlock
    kind: str  # "read after write", "uninitialised branch", ...
    kernel: str  # the mangled name; empty if no kernel was involved
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    ptx_line: int
    ptx: str  # the text of the PTX line
    source: str  # CUDA source file; empty without -lineinfo
    source_line: int
    space: str  # "global", "shared" or "local"; empty if no memory is involved
    address: int  # in shared and local memory an offset
    size_bytes: int
    allocation: int  # number of the allocation that it lies in or beside; 0 where there is none
    count: int  # once for each launch and instruction that showed it
    message: str  # all of it, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAllocation:
    """Device memory that was allocated and not freed."""

    address: int
    size_bytes: int
    number: int  # the number in messages


class _Finding(ctypes.Structure):
    """`vgpu_finding` of vgpu.h."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("check", "kind", "kernel", "ptx", "source")),
        ("space", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("ptx_line", ctypes.c_uint32),
        ("source_line", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("allocation", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


class _Allocation(ctypes.Structure):
    """`vgpu_allocation` of vgpu.h."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("address", "bytes", "number"))


class _Launch(ctypes.Structure):
    """`vgpu_launch` of vgpu.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint64),
        ("warp_instructions", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("cpu_seconds", ctypes.c_double),
        ("modelled_seconds", ctypes.c_double),
    )


class Vgpu:
    """The virtual GPU in this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.vgpu_last_error.restype = ctypes.c_char_p
        library.vgpu_isa.restype = ctypes.c_char_p
        library.vgpu_counters.restype = ctypes.c_char_p
        library.vgpu_launches.restype = ctypes.c_uint64
        library.vgpu_launches.argtypes = (ctypes.POINTER(_Launch), ctypes.c_uint64)
        library.vgpu_set_option.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
        library.vgpu_findings.restype = ctypes.c_uint64
        library.vgpu_findings.argtypes = (ctypes.POINTER(_Finding), ctypes.c_uint64)
        library.vgpu_allocations.restype = ctypes.c_uint64
        library.vgpu_allocations.argtypes = (ctypes.POINTER(_Allocation), ctypes.c_uint64)

    def launches(self) -> list[LaunchRecord]:
        """Return the launches since the start or the last `clear_launches`, oldest first."""
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
                cpu_s=launch.cpu_seconds,
                modelled_s=launch.modelled_seconds,
            )
            for launch in found[:count]
        ]

    def counters(self) -> list[dict[str, Any]]:
        """Return the counters of launches that ran with the option `counters=on`, oldest first.

        vgpu/README.md explains the names.
        """
        found: list[dict[str, Any]] = json.loads(self._library.vgpu_counters())
        return found

    def clear_launches(self) -> None:
        """Delete the records of launches."""
        self._library.vgpu_clear_launches()

    def findings(self) -> list[Finding]:
        """Return the findings since the start or the last `clear_findings`, faults included."""
        room = int(self._library.vgpu_findings(None, 0))
        found = (_Finding * room)()
        count = min(room, int(self._library.vgpu_findings(found, room)))
        return [
            Finding(
                check=_text(one.check),
                kind=_text(one.kind),
                kernel=_text(one.kernel),
                block=tuple(one.block),
                thread=tuple(one.thread),
                ptx_line=one.ptx_line,
                ptx=_text(one.ptx),
                source=_text(one.source),
                source_line=one.source_line,
                space=_text(one.space),
                address=one.address,
                size_bytes=one.bytes,
                allocation=one.allocation,
                count=one.count,
                message=_text(one.message),
            )
            for one in found[:count]
        ]

    def clear_findings(self) -> None:
        """Delete the findings."""
        self._library.vgpu_clear_findings()

    def leaks(self) -> list[DeviceAllocation]:
        """Return the device memory that is allocated now; at the end of a program it is a leak."""
        room = int(self._library.vgpu_allocations(None, 0))
        found = (_Allocation * room)()
        count = min(room, int(self._library.vgpu_allocations(found, room)))
        return [
            DeviceAllocation(address=one.address, size_bytes=one.bytes, number=one.number)
            for one in found[:count]
        ]

    def last_error(self) -> str:
        """Return the full message of the last fault or refused call; empty if there was none."""
        text: bytes = self._library.vgpu_last_error()
        return text.decode(errors="replace")

    def clear_error(self) -> None:
        """Clear a fault; until then every call fails (a GPU would need a new process)."""
        self._library.vgpu_reset_error()

    def isa(self) -> str:
        """The host instruction set in use: avx512, avx2 or generic."""
        text: bytes = self._library.vgpu_isa()
        return text.decode()

    def set_option(self, name: str, value: str | int) -> None:
        """Set an option for later launches; vgpu/README.md lists the options.

        `check` takes names separated by commas, `all` or `none`. initcheck only knows memory that
        is allocated while it is on, so set it first.

        Raises:
            VgpuError: the option or its value is unknown.
        """
        if self._library.vgpu_set_option(name.encode(), str(value).encode()):
            raise VgpuError(self.last_error())


def check_options(lib_dir: Path, text: str) -> None:
    """Check that the virtual GPU in `lib_dir` knows the options in `text` (as in BOLTGEN_VGPU).

    The library itself answers. It sets no option and does not replace CUDA.

    Raises:
        VgpuError: an option or its value is unknown; the message lists the known ones.
    """
    library = ctypes.CDLL(str(lib_dir.resolve() / "libvgpu.so"))
    library.vgpu_last_error.restype = ctypes.c_char_p
    if library.vgpu_check_options(text.encode()):
        raise VgpuError(_text(library.vgpu_last_error()))


def _text(text: bytes) -> str:
    return text.decode(errors="replace")


def load(lib_dir: Path, arch: str = "sm_80", *, runtimes: Sequence[str] = RUNTIMES) -> Vgpu:
    """Load the virtual GPU's libraries in `lib_dir` into this process in place of CUDA's.

    `runtimes` are the CUDA runtimes to replace. Call it before TVM or any CUDA library is loaded; a
    second call is harmless.

    Raises:
        RuntimeError: the process has already loaded another CUDA driver or runtime.
        VgpuError: the libraries cannot be loaded, or the architecture is unknown.
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
            f"the virtual GPU cannot be loaded ({error}); remove {folder}, and boltgen builds it "
            "again"
        ) from error
    vgpu = Vgpu(libraries[0])
    vgpu.set_option("device", device_for(arch))
    return vgpu


def _mapped_libraries() -> set[Path]:
    lines = _MAPS.read_text().splitlines()
    return {Path("/" + line.partition("/")[2]) for line in lines if "/" in line}
