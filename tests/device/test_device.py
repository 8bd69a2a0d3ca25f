"""The choice of a device, and what is said where it is not there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from boltgen.device import choose as device
from boltgen.errors import DeviceError
from boltgen.running.loaded import check_capability
from boltgen.settings import settings_from


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(
        DeviceError, match="unknown device 'gpu'; the devices are 'vgpu' and 'cuda'"
    ):
        device.activate("gpu")


_NO_DRIVER = """
from boltgen.device import choose as device
device._DRIVER = "libcuda-of-no-machine.so.1"
try:
    device.activate("cuda")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_no_driver() -> None:
    # In a process of its own: this one may use the virtual GPU.
    command = [sys.executable, "-c", _NO_DRIVER]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "DeviceError no GPU: libcuda-of-no-machine.so.1 cannot be loaded" in said
    assert "use the virtual GPU: device 'vgpu'" in said


@pytest.mark.parametrize(
    ("arch", "capability"),
    [
        ("sm_80", "8.0"),
        ("sm_80", "8.6"),
        ("sm_80", "9.0"),
        ("sm_75", "12.0"),
        ("sm_90a", "9.0"),
        ("sm_100", "10.3"),
        ("sm_120", "12.1"),
    ],
)
def test_gpus_that_can_run_an_arch(arch: str, capability: str) -> None:
    check_capability(arch, capability)


@pytest.mark.parametrize(
    ("arch", "capability", "gpu", "remedy"),
    [
        ("sm_80", "7.5", "sm_75", "sm_75"),
        ("sm_90", "8.9", "sm_89", "sm_89"),
        ("sm_90a", "10.0", "sm_100", "sm_100"),
        ("sm_100", "9.0", "sm_90", "sm_90a"),
        ("sm_121", "12.0", "sm_120", "sm_120"),
    ],
)
def test_gpus_that_cannot(arch: str, capability: str, gpu: str, remedy: str) -> None:
    said = f"compiled for {arch}, the GPU is {gpu}: compile it with --arch {remedy},"
    with pytest.raises(DeviceError, match=said):
        check_capability(arch, capability)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense=1", "nonsense"),
        ("device=sm_80,threads=0", "threads=0"),
        ("check=everything", "check=everything: know memcheck"),
    ],
)
def test_options_of_the_virtual_gpu_that_do_not_hold_are_refused(text: str, said: str) -> None:
    settings = replace(settings_from(), vgpu_options=text)
    with pytest.raises(DeviceError, match=f"BOLTGEN_VGPU='{text}': .*{said}.*correct it, or unset"):
        device.activate("vgpu", settings=settings)
