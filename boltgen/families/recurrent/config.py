"""Configurations of recurrent layers. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

# The units of a threadblock that has all of them.
ALL_UNITS = 0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecurrentConfig:
    """One kernel: a warp has `groups` of eight hidden units.

    The recurrent weights are `resident` in registers, or each step reads them from L2. A
    threadblock has so many hidden `units`, and exchanges states with the others in each step; with
    `ALL_UNITS` it has all and exchanges nothing. `slices` warps share a group, each with a part of
    K.
    """

    family: ClassVar[str] = "recurrent"

    groups: int
    resident: bool
    units: int = ALL_UNITS
    slices: int = 1

    @property
    def is_shared(self) -> bool:
        """Whether threadblocks share the hidden units."""
        return self.units != ALL_UNITS

    @property
    def tile(self) -> str:
        """The rows and hidden units of a threadblock, and the hidden units of a warp."""
        units = f"x{self.units}" if self.is_shared else ""
        slices = f"/{self.slices}" if self.slices > 1 else ""
        return f"16{units}x{8 * self.groups}{slices}"

    def __str__(self) -> str:
        return f"{self.tile}{'r' if self.resident else 's'}"
