"""Resolve a user's `arch`: a name in the table, or `native`, the GPU of this machine.

Arrow: what is asked for to a row of `boltgen.arch`.
"""

from __future__ import annotations

import logging

from boltgen.arch import Arch, arch_named, arch_of_device, what_is_lost
from boltgen.build.driver import device_architecture
from boltgen.device.gpu_names import require_arch
from boltgen.errors import DeviceError, UnknownArchError

NATIVE = "native"

_log = logging.getLogger(__name__)

_REMEDY = "name the architecture, such as --arch sm_80"


def asked_arch(name: str) -> Arch:
    """Return the row that a user names, also by a GPU's name; warn if another row makes more of the
    same GPUs.

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
    """Return the row that makes the most of this machine's GPU number `ordinal`.

    `remedy` is what to do where there is none, for the message.

    Raises:
        DeviceError: there is none, or boltgen does not know it.
    """
    found = device_architecture(ordinal, remedy)
    try:
        return arch_of_device(found)
    except UnknownArchError as error:
        raise DeviceError(f"this machine's GPU is a device of {found}: {error}") from error
