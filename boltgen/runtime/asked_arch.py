"""What a user's `arch` means: a name in the table, or `native`, the GPU of this machine.

Arrow: what is asked for to a row of `boltgen.arch`.
"""

from __future__ import annotations

import logging
import subprocess
import sys

from boltgen.arch import Arch, arch_named, arch_of_device, what_is_lost
from boltgen.errors import DeviceError, UnknownArchError
from boltgen.runtime.gpu_names import require_arch

NATIVE = "native"

_log = logging.getLogger(__name__)

# In a process of its own: the driver that a process loads first serves it until its end, and
# kernels are checked on the virtual GPU. Numbers: CUdevice_attribute's compute capability.
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
_REMEDY = "name the architecture, such as --arch sm_80"


def asked_arch(name: str) -> Arch:
    """The row that a user asks for, by its name or a GPU's; warns where another one makes more of
    the same GPUs.

    Raises:
        UnknownArchError: no row and no GPU has that name.
        DeviceError: it is `native`, and there is no GPU that boltgen knows.
    """
    if name == NATIVE:
        return native_arch()
    row = arch_named(require_arch(name))
    if lost := what_is_lost(row):
        _log.warning("%s", lost)
    return row


def native_arch(ordinal: int = 0, remedy: str = _REMEDY) -> Arch:
    """The row that makes the most of this machine's GPU number `ordinal`.

    `remedy` is what to do where there is none, for the message.

    Raises:
        DeviceError: there is none, or boltgen does not know it.
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
    found = done.stdout.split()[-1]
    try:
        return arch_of_device(found)
    except UnknownArchError as error:
        raise DeviceError(f"this machine's GPU is a device of {found}: {error}") from error
