"""Ask the driver for a GPU's architecture without loading the driver into this process."""

from __future__ import annotations

import subprocess
import sys

from boltgen.errors import DeviceError

# In a process of its own: the first driver that a process loads stays until its end, and kernels
# are checked on the virtual GPU. The numbers are CUdevice_attribute's compute capability.
_ASK = """
import ctypes, sys
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"libcuda.so.1 cannot be loaded ({error})")
def call(function, *arguments):
    status = function(*arguments)
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        sys.exit(f"the driver reports {(text.value or b'unknown error').decode()} ({status})")
call(driver.cuInit, 0)
device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
call(driver.cuDeviceGet, ctypes.byref(device), int(sys.argv[1]))
call(driver.cuDeviceGetAttribute, ctypes.byref(major), 75, device)
call(driver.cuDeviceGetAttribute, ctypes.byref(minor), 76, device)
print(f"sm_{major.value}{minor.value}")
"""
_SECONDS = 60


def device_architecture(ordinal: int, remedy: str) -> str:
    """Return the architecture of this machine's GPU number `ordinal`, such as "sm_80".

    `remedy` ends the message if there is no GPU; it says what to do.

    Raises:
        DeviceError: there is no such GPU, or the driver does not answer.
    """
    command = [sys.executable, "-c", _ASK, str(ordinal)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"the driver does not answer within {_SECONDS} s; {remedy}") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise DeviceError(f"no GPU: {said}; {remedy}")
    return done.stdout.split()[-1]
