"""A rendered kernel."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.space.kernel import KernelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """A rendered kernel: the `.cu` text and the C symbols that it defines.

    `symbol` runs it and `workspace_symbol` returns its workspace in bytes; both take a pointer to
    the family's argument struct in `boltgen/abi.h`.
    """

    spec: KernelSpec
    symbol: str
    workspace_symbol: str
    text: str
