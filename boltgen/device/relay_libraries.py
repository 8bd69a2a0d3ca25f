"""Load the libraries that a TVM with Relay needs before it is imported.

TVM up to 0.19 is linked with the CUDA driver, the CUDA 12 runtime and NVRTC; without them `import
tvm` fails. NVIDIA's wheels have the latter two in folders that the linker does not search.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from boltgen.frontend.relay.versions import installed_tvm

_RUNTIME = "libcudart.so.12"
# Each library, and the <folder> of its wheel `nvidia-<folder>-cu12`.
_LIBRARIES = ((_RUNTIME, "cuda_runtime"), ("libnvrtc.so.12", "cuda_nvrtc"))
_MAPS = Path("/proc/self/maps")


def is_needed() -> bool:
    """Return whether the installed TVM has Relay."""
    found = installed_tvm()
    return found is not None and found.has_relay


def runtimes() -> tuple[str, ...]:
    """Return the names of CUDA runtimes that TVM is linked with, besides boltgen's own."""
    return (_RUNTIME,) if is_needed() else ()


def load() -> None:
    """Load the libraries that are found; a missing one may not be needed by this build of TVM."""
    for soname, package in _LIBRARIES:
        if soname in _MAPS.read_text():
            continue
        try:
            ctypes.CDLL(soname, ctypes.RTLD_GLOBAL)
        except OSError:
            wheel = _wheel_library(package, soname)
            if wheel is not None:
                ctypes.CDLL(str(wheel), ctypes.RTLD_GLOBAL)


def _wheel_library(package: str, soname: str) -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        library = Path(folder) / package / "lib" / soname
        if library.is_file():
            return library
    return None
