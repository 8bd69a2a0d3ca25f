"""CUTLASS template search and code generation for TVM."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from boltgen.installation import refuse_other_platforms

if TYPE_CHECKING:
    from boltgen import relax, relay
    from boltgen.arch import Arch
    from boltgen.compiler import compile
    from boltgen.device.choose import activate
    from boltgen.errors import BoltgenError
    from boltgen.options import CompileOptions, KernelOptions, TuneOptions
    from boltgen.quantiser.quantise import quantize
    from boltgen.running.artifact import Artifact, load
    from boltgen.tuner import open_session, tune
    from boltgen.tuning.database.database import Database
    from boltgen.tuning.session.session import Session

__version__ = "0.1.0"

__all__ = [
    "Arch",
    "Artifact",
    "BoltgenError",
    "CompileOptions",
    "Database",
    "KernelOptions",
    "Session",
    "TuneOptions",
    "__version__",
    "activate",
    "compile",
    "load",
    "open_session",
    "quantize",
    "relax",
    "relay",
    "tune",
]

# Each name is imported when it is first used: TVM takes seconds, and a part of boltgen must be
# importable without the others.
_HOMES = {
    "Arch": "boltgen.arch",
    "Artifact": "boltgen.running.artifact",
    "BoltgenError": "boltgen.errors",
    "CompileOptions": "boltgen.options",
    "Database": "boltgen.tuning.database.database",
    "KernelOptions": "boltgen.options",
    "Session": "boltgen.tuning.session.session",
    "TuneOptions": "boltgen.options",
    "activate": "boltgen.device.choose",
    "compile": "boltgen.compiler",
    "load": "boltgen.running.artifact",
    "open_session": "boltgen.tuner",
    "quantize": "boltgen.quantiser.quantise",
    "tune": "boltgen.tuner",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    refuse_other_platforms()
    if name in {"relax", "relay"}:
        return importlib.import_module(f"boltgen.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'boltgen' has no attribute {name!r}")
