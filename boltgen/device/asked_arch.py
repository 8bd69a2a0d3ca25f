"""Resolve a user's `arch`: a row of the table, a GPU's name, or `native`, this machine's GPU.

Arrow: from the user's text to a row of `boltgen.arch`.
"""

from __future__ import annotations

import logging

from boltgen.arch import Arch, arch_named, arch_of_device, what_is_lost
from boltgen.build.gpu_probe import device_architecture
from boltgen.device.gpu_names import require_arch
from boltgen.errors import DeviceError, UnknownArchError

NATIVE = "native"

_log = logging.getLogger(__name__)

_REMEDY = "name the architecture, such as --arch sm_80"


def asked_arch(name: str) -> Arch:
    """Return the row for the name of an architecture or GPU; warn if another row suits it better.

    Raises:
        UnknownArchError: no row and no GPU has that name.
        DeviceError: the name is `native`, and the machine has no GPU that boltgen knows.
    """
    if name == NATIVE:
        return native_arch()
    row = arch_named(require_arch(name))
    if lost := what_is_lost(row):
        _log.warning("%s", lost)
    return row


def native_arch(ordinal: int = 0, remedy: str = _REMEDY) -> Arch:
    """Return the row with the most features of this machine's GPU number `ordinal`.

    `remedy` ends the message if there is no GPU; it says what to do.

    Raises:
        DeviceError: there is no such GPU, or boltgen does not know it.
    """
    found = device_architecture(ordinal, remedy)
    try:
        return arch_of_device(found)
    except UnknownArchError as error:
        raise DeviceError(f"this machine's GPU is a device of {found}: {error}") from error
