"""TVM's hook: `relay.build` calls `relay.ext.boltgen` with one region after the other.

The kernels of a whole module are built before, in parallel. Each region's function says where they
are, so any process on this machine can build the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relay

from boltgen.errors import BoltgenError

# The files that a region is linked from, as attributes of its function: paths of its adapter's
# object, and of the archives of its kernel and layout transforms.
ADAPTER = "boltgen_adapter"
ARCHIVES = "boltgen_archives"


@dataclass(frozen=True, slots=True)
class Linked:
    """The files that a region is linked from: its adapter's object, the archives of its kernel and
    layout transforms.
    """

    adapter: Path
    archives: tuple[Path, ...]


def marked(function: relay.Function, linked: Linked) -> relay.Function:
    """A region's function with the paths of what was built for it."""
    archives = [tvm.runtime.String(str(path)) for path in linked.archives]
    with_adapter = function.with_attr(ADAPTER, tvm.runtime.String(str(linked.adapter)))
    return with_adapter.with_attr(ARCHIVES, tvm.runtime.convert(archives))


def generate(function: relay.Function) -> tvm.runtime.Module:
    """The module that TVM links for a region.

    Kernels are in archives: regions share them, and a linker takes each archive's member once,
    however often the archive is named.

    Raises:
        BoltgenError: the region was not compiled, or what was built for it is gone.
    """
    symbol = str(function.attrs["global_symbol"])
    if ADAPTER not in function.attrs:
        raise BoltgenError(
            f"region {symbol} has no kernel; make the module with boltgen.relay.partition"
        )
    adapter = _existing(symbol, str(function.attrs[ADAPTER]))
    module = tvm.runtime.load_static_library(str(adapter), [symbol])
    for path in function.attrs[ARCHIVES]:
        archive = _existing(symbol, str(path))
        module.import_module(tvm.runtime.load_static_library(str(archive), []))
    return module


def _existing(symbol: str, path: str) -> Path:
    if not Path(path).is_file():
        raise BoltgenError(
            f"the kernels of region {symbol} are gone from the cache: {path} is missing; call "
            "boltgen.relay.partition on the model again"
        )
    return Path(path)


def _no_constants(function: relay.Function, symbol: str) -> dict[str, object]:
    """Return the constants of a region that TVM must keep: always none, the kernel includes them.

    TVM would add them to the model's parameters, which its ahead-of-time executor then refuses.
    """
    del function, symbol
    return {}


def register() -> None:
    """Make the hooks known to TVM; doing so again replaces them."""
    tvm.register_func("relay.ext.boltgen", generate, override=True)
    tvm.register_func("relay.ext.boltgen.constant_updater", _no_constants, override=True)
