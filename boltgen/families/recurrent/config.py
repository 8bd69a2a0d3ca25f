"""Configurations of recurrent layers. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecurrentConfig:
    """One kernel: a warp has `groups` of eight hidden units.

    The recurrent weights are `resident` in registers, or each step reads them from L2.
    """

    family: ClassVar[str] = "recurrent"

    groups: int
    resident: bool

    @property
    def tile(self) -> str:
        """The rows of a threadblock, and the hidden units of a warp."""
        return f"16x{8 * self.groups}"

    def __str__(self) -> str:
        return f"{self.tile}{'r' if self.resident else 's'}"
