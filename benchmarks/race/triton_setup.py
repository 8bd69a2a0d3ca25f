"""A kernel of `triton_kernels` in one configuration, without Triton itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A kernel of `triton_kernels`, its grid, the extents that it takes, and its constants."""

    kernel: str
    grid: tuple[int, ...]
    extents: tuple[int | float, ...]
    constants: Mapping[str, int | bool]
    warps: int
    stages: int
