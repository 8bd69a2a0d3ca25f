"""The virtual GPU of this process, which all tests that the process runs share."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from boltgen.device.choose import DEFAULT_ARCH, loaded_driver
from boltgen.device.vgpu import Vgpu

_FIRST = {
    "device": DEFAULT_ARCH,
    "isa": "auto",
    "copies": "late",
    "check": "none",
    "counters": "off",
    "fresh": "nan",
    "seed": 0,
    "timeout": 0,
}


def loaded_virtual_gpu() -> Vgpu | None:
    """The virtual GPU, where it has taken CUDA's place in this process."""
    driver = loaded_driver()
    library = driver and driver.with_name("libvgpu.so")
    return Vgpu(ctypes.CDLL(str(library))) if library and library.is_file() else None


def reset(vgpu: Vgpu) -> None:
    """Put `vgpu` into its first state: nothing found, nothing launched, no error, no check."""
    vgpu.clear_error()
    vgpu.clear_findings()
    vgpu.clear_launches()
    for name, value in _FIRST.items():
        vgpu.set_option(name, value)


@contextmanager
def all_checks(vgpu: Vgpu) -> Iterator[None]:
    """Every check on, with nothing found before; off and forgotten afterwards."""
    vgpu.clear_findings()
    vgpu.set_option("check", "all")
    try:
        yield
    finally:
        vgpu.set_option("check", "none")
        vgpu.clear_findings()
