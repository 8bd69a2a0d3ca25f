"""Configurations of single layers by the CUTLASS 2.x API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.mma_sync.config import Tiles


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cutlass2Config(Tiles):
    """One kernel of the CUTLASS 2.x API, for every architecture; a fallback on sm_90 to sm_103."""

    family: ClassVar[str] = "cutlass2"


def config_of(tiles: Tiles) -> Cutlass2Config:
    """Return the configuration with these tiles and launch arguments."""
    return Cutlass2Config(
        threadblock=tiles.threadblock,
        warp=tiles.warp,
        instruction=tiles.instruction,
        stages=tiles.stages,
        swizzle=tiles.swizzle,
        split_k=tiles.split_k,
    )
