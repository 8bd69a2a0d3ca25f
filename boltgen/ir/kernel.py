"""Kernels and launches as values, whatever family they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """Everything that decides a kernel's machine code, and no problem size.

    `traits` are what the family compiles of the workload, `config` what it compiles of the
    configuration; `arch` is "sm_80".
    """

    family: str
    arch: str
    traits: Any
    config: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The arguments of a launch: the C struct's name, and its numbers by field.

    A field of one of several layers is "layers[1].n". `workspace_bytes` is the device memory that
    the kernel needs besides its tensors. So many `threadblocks_at_once` wait for each other.
    """

    struct: str
    sizes: Mapping[str, int]
    workspace_bytes: int = 0
    threadblocks_at_once: int = 1
    has_layers: bool = False

    def of_layer(self, index: int) -> str:
        """Return the prefix of a layer's fields: of its B and its epilogue's operands."""
        return f"layers[{index}]." if self.has_layers else ""
