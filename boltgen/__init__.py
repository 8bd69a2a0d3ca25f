"""CUTLASS template search and code generation for TVM."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boltgen import relax, relay, tune
    from boltgen.arch import Arch
    from boltgen.compiler import compile
    from boltgen.errors import BoltgenError
    from boltgen.options import CompileOptions, KernelOptions, TuneOptions
    from boltgen.runtime.artifact import Artifact, load
    from boltgen.runtime.device import activate
    from boltgen.tune.database import Database
    from boltgen.tune.session import Session
    from boltgen.tuner import open_session

__all__ = [
    "Arch",
    "Artifact",
    "BoltgenError",
    "CompileOptions",
    "Database",
    "KernelOptions",
    "Session",
    "TuneOptions",
    "activate",
    "compile",
    "load",
    "open_session",
    "relax",
    "relay",
    "tune",
]

# Each name is imported when it is first used: TVM takes seconds, and a part of boltgen must be
# importable without the others.
_HOMES = {
    "Arch": "boltgen.arch",
    "Artifact": "boltgen.runtime.artifact",
    "BoltgenError": "boltgen.errors",
    "CompileOptions": "boltgen.options",
    "Database": "boltgen.tune.database",
    "KernelOptions": "boltgen.options",
    "Session": "boltgen.tune.session",
    "TuneOptions": "boltgen.options",
    "activate": "boltgen.runtime.device",
    "compile": "boltgen.compiler",
    "load": "boltgen.runtime.artifact",
    "open_session": "boltgen.tuner",
}


def __getattr__(name: str) -> Any:
    if name in {"relax", "relay", "tune"}:
        return importlib.import_module(f"boltgen.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'boltgen' has no attribute {name!r}")
